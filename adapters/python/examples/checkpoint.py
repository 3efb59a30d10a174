"""Compares checkpoints of this package with plain files, in a memory group 1 GiB above the state.

Usage: checkpoint.py DIRECTORY [GIB [ROUNDS]]

As root, with version 1 of the memory controller. The state is GIB (4) in 200 arrays. Each save is
durable when it ends. It runs on a thread, while the main thread sleeps a millisecond at a time: the
stall is the longest time between two steps of the main thread. The memory is what the save adds to
the process, without the page cache.
"""

import contextlib
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import forebay
import numpy
import safetensors.numpy
from paired import compare

DIRECTORY = os.path.join(sys.argv[1], "checkpoints")
GIB = float(sys.argv[2]) if len(sys.argv) > 2 else 4
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
FILES = 200
GROUP = "/sys/fs/cgroup/memory/forebay-checkpoint"


def of_checkpoint(contents):
    with forebay.checkpoint(os.path.join(DIRECTORY, "ours")) as new:
        new.write_all(contents)


def ours_numpy():
    of_checkpoint({f"{name}.npy": lambda file, array=array: numpy.save(file, array)
                   for name, array in state.items()})


def ours_safetensors():
    of_checkpoint({name: lambda file, one={name: array}: file.write(safetensors.numpy.save(one))
                   for name, array in state.items()})


def plain(threads, save):
    """Plain files, each synced, in a new directory; then the one before is removed."""
    def one(name):
        path = os.path.join(new, name)
        save(name, path)
        sync(path)

    new = os.path.join(DIRECTORY, "plain.new")
    os.makedirs(new)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, state))
    sync(new)
    shutil.rmtree(os.path.join(DIRECTORY, "plain"), ignore_errors=True)
    os.rename(new, os.path.join(DIRECTORY, "plain"))
    sync(DIRECTORY)


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def save_numpy(name, path):
    with open(path, "wb") as file:
        numpy.save(file, state[name])


def save_file(name, path):
    safetensors.numpy.save_file({name: state[name]}, path)


def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))


def seconds(name, save):
    shutil.rmtree(os.path.join(DIRECTORY, "plain.new"), ignore_errors=True)
    os.sync()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")             # the peak begins anew
    before, stall = resident("VmRSS"), 0
    with ThreadPoolExecutor(1) as pool:
        start = last = time.perf_counter()
        saving = pool.submit(save)
        while not saving.done():
            time.sleep(0.001)
            now = time.perf_counter()
            last, stall = now, max(stall, now - last)
    saving.result()
    worst[name] = [max(pair) for pair in zip(
        worst.get(name, (0, 0)), (stall * 1000, resident("VmHWM") - before))]
    return last - start


@contextlib.contextmanager
def group():
    os.makedirs(GROUP, exist_ok=True)
    with open(f"{GROUP}/memory.limit_in_bytes", "w") as limit:
        limit.write(str(int((GIB + 1) * 2**30)))
    own = next(line for line in open("/proc/self/cgroup") if ":memory:" in line).split(":")[2]
    enter(GROUP)
    try:
        yield
    finally:
        enter("/sys/fs/cgroup/memory" + own.strip())
        with open(f"{GROUP}/memory.force_empty", "w") as empty:
            empty.write("0")
        os.rmdir(GROUP)


def enter(name):
    with open(f"{name}/cgroup.procs", "w") as processes:
        processes.write(str(os.getpid()))


WAYS = {
    "numpy, fsync each": lambda: plain(1, save_numpy),
    "numpy, 4 threads": lambda: plain(4, save_numpy),
    "numpy, forebay": ours_numpy,
    "safetensors, save_file": lambda: plain(1, save_file),
    "safetensors, 4 threads": lambda: plain(4, save_file),
    "safetensors, forebay": ours_safetensors,
}

with group():
    os.makedirs(DIRECTORY)
    worst = {}
    length = int(GIB * 2**30) // FILES // 4
    state = {str(index): numpy.arange(index, index + length, dtype="i4") for index in range(FILES)}
    try:
        for kind in ("numpy", "safetensors"):
            compare({name: lambda name=name, save=save: seconds(name, save)
                     for name, save in WAYS.items() if name.startswith(kind)}, ROUNDS, "s")
        for name, (stall, memory) in worst.items():
            print(f"{name:<28} at most {stall:6.0f} ms stall, {memory:6.0f} MiB of memory")
    finally:
        shutil.rmtree(DIRECTORY)
