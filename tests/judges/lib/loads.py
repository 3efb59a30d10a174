"""The loads of `speed`. Each runs in a directory and prints its numbers as JSON."""

import io
import json
import os
import random
import sys
import tarfile
import threading
import time

from .programs import CACHE, run
from .server import Server

MIB = 1 << 20


def random_writes(directory, memory):
    """Random writes of 4 KiB into twelve new files, until they are synced."""
    each = memory * 3 // 12 // 4096
    files = [os.open(os.path.join(directory, f"random-{n}"), os.O_CREAT | os.O_WRONLY)
             for n in range(12)]
    places = [(file, block * 4096) for file in files for block in range(each)]
    random.Random(3).shuffle(places)
    data = memoryview(os.urandom(MIB))
    began = time.monotonic()
    for number, (file, at) in enumerate(places):
        start = number % 255 * 4096
        os.pwrite(file, data[start:start + 4096], at)
    for file in files:
        os.fsync(file)
    return {"MiB/s": len(places) * 4096 / MIB / (time.monotonic() - began)}


class Bulk(threading.Thread):
    """Writes a large file again and again, without a sync."""

    def __init__(self, directory, bytes_):
        super().__init__()
        self.path, self.bytes, self.wrote, self.is_over = \
            os.path.join(directory, "bulk"), bytes_, 0, False
        self.failed = None
        self.start()

    def run(self):
        data = os.urandom(MIB)
        try:
            file = os.open(self.path, os.O_CREAT | os.O_WRONLY)
            while not self.is_over:
                os.pwrite(file, data, self.wrote % self.bytes)
                self.wrote += MIB
            os.close(file)
        except OSError as error:
            self.failed = error

    def end(self):
        self.is_over = True
        self.join()
        if self.failed:
            raise self.failed


def small_syncs(directory, memory):
    """A write of 4 KiB and fdatasync, again and again, beside a large sequential writer."""
    bulk = Bulk(directory, memory * 3)
    time.sleep(2)
    file = os.open(os.path.join(directory, "log"), os.O_CREAT | os.O_WRONLY)
    data, took, began = os.urandom(4096), [], time.monotonic()
    wrote = bulk.wrote
    while time.monotonic() < began + 8:
        one = time.monotonic()
        os.write(file, data)
        os.fdatasync(file)
        took.append(time.monotonic() - one)
    wrote = bulk.wrote - wrote
    seconds = time.monotonic() - began
    bulk.end()
    took.sort()
    return {"p50 ms": took[len(took) // 2] * 1000, "p99 ms": took[len(took) * 99 // 100] * 1000,
            "syncs/s": len(took) / seconds, "bulk MiB/s": wrote / MIB / seconds}


def sequential(directory, memory):
    """A large file, written and synced, then read."""
    path, data = os.path.join(directory, "large"), os.urandom(MIB)
    count = memory * 3 // MIB
    began = time.monotonic()
    with open(path, "wb", buffering=0) as file:
        for _ in range(count):
            file.write(data)
        os.fsync(file.fileno())
    written = time.monotonic()
    buffer, read = bytearray(MIB), 0
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            read += size
    ended = time.monotonic()
    if read != count * MIB or buffer != data:
        raise OSError("the bytes read are not those written")
    return {"write MiB/s": count / (written - began), "read MiB/s": count / (ended - written)}


FILES = 12_000


def archive():
    """The archive of `untar`, made once."""
    path = os.path.join(CACHE, f"speed-{FILES}.tar")
    if not os.path.exists(path):
        chance = random.Random(4)
        with tarfile.open(path + ".new", "w") as tar:
            for number in range(FILES):
                entry = tarfile.TarInfo(f"{number % 23}/{number % 7}/file-{number}")
                entry.size = int(chance.paretovariate(1.1) * 1500) % 200_000
                tar.addfile(entry, io.BytesIO(chance.randbytes(entry.size)))
        os.rename(path + ".new", path)
    return path


def untar(directory, _):
    """An archive of small files, extracted. Its end is that of `speed`, when all is durable."""
    path = archive()
    began = time.monotonic()
    run("tar", "-xf", path, "-C", directory)
    return {"files/s": FILES, "began": began, "extracted/s": FILES / (time.monotonic() - began)}


def pgbench(directory, memory):
    """pgbench beside a large sequential writer."""
    server = Server(os.path.join(directory, "data"))
    try:
        server.create()
        server.start()
        server.call("pgbench", "-i", "-q", "-s", 5)
        bulk = Bulk(directory, memory * 3)
        time.sleep(1)
        wrote, began = bulk.wrote, time.monotonic()
        printed = server.call("pgbench", "-n", "-T", 8, "-c", 4, "-j", 1)
        seconds = time.monotonic() - began
        wrote = bulk.wrote - wrote
        bulk.end()
        rate = next(line for line in printed.splitlines() if line.startswith("tps = "))
        return {"tps": float(rate.split()[2]), "bulk MiB/s": wrote / MIB / seconds}
    finally:
        server.end()


LOADS = {"random": random_writes, "syncs": small_syncs, "sequential": sequential,
         "untar": untar, "pgbench": pgbench}

if __name__ == "__main__":
    name, directory, memory = sys.argv[1:]
    print(json.dumps(LOADS[name](directory, int(memory))))
