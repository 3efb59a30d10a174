"""Compares calls of this package with the same calls of the Rust library, in turn.

Usage: calls.py RUST DIRECTORY [ROUNDS]

RUST is the program of calls.rs: `cargo build --release -p forebay-python --example calls`. A round
writes 512 pieces of 1 MiB and syncs once, appends 200,000 times one byte, and lets 100 tasks of one
event loop write 16 KiB and sync, 20 times each. Prints the means, and the geometric mean of the
ratios with its 95 % interval.
"""

import asyncio
import os
import subprocess
import sys
import time

import forebay
from paired import compare

RUST, DIRECTORY = sys.argv[1:3]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 10
PIECE, BURST = bytes(range(256)) * 4096, bytes(16 << 10)


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rust(work):
    print(work, DIRECTORY, file=program.stdin, flush=True)
    return float(program.stdout.readline())


def writes(file, sync):
    def work():
        for _ in range(512):
            file.write(PIECE)
        sync()
        file.close()

    return timed(work)


def ours():
    file = new("file")
    return 512 / writes(file, file.sync_all)


def plain():
    file = open(os.path.join(DIRECTORY, "file"), "wb", buffering=0)
    return 512 / writes(file, lambda: os.fsync(file.fileno()))


def appends(call):
    def work():
        for _ in range(200_000):
            call(b"x")

    return timed(work) / 200_000 * 1e9


def our_appends():
    with new("file") as file:
        return appends(file.append)


def plain_appends():
    with open(os.path.join(DIRECTORY, "file"), "ab", buffering=0) as file:
        return appends(file.write)


def tasks():
    async def bursts(file):
        view = file.asynchronous()
        for index in range(20):
            await view.write_at(index * len(BURST), BURST)
            await view.sync_data()
        await view.close()

    async def main():
        files = [new(str(task)) for task in range(100)]
        start = time.perf_counter()
        await asyncio.gather(*map(bursts, files))
        return 2000 / (time.perf_counter() - start)

    return asyncio.run(main())


def new(name):
    return engine.open(os.path.join(DIRECTORY, name), "wb")


program = subprocess.Popen([RUST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
with forebay.Engine() as engine:
    print("Writes of 1 MiB and a sync:")
    compare({"rust": lambda: 512 / rust("writes"), "python": ours, "plain file": plain}, ROUNDS,
            "MiB/s")
    print("Appends of one byte:")
    compare({"rust": lambda: rust("appends") / 200_000 * 1e9, "python": our_appends,
             "plain file, unbuffered": plain_appends}, ROUNDS, "ns")
    print("100 tasks that write 16 KiB and sync:")
    compare({"rust": lambda: 2000 / rust("tasks"), "python": tasks}, ROUNDS, "per s")
program.stdin.close()
program.wait()
