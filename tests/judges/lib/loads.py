"""The loads of `speed`. Each runs in a directory and prints its numbers as JSON."""

import io
import json
import os
import random
import shutil
import sqlite3
import subprocess
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


FILES = int(os.environ.get("JUDGES_FILES", "12000"))


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


def took(operation, *words, **options):
    """Seconds of a command or of a call."""
    began = time.monotonic()
    if callable(operation):
        operation(*words)
    else:
        run(operation, *words, **options)
    return time.monotonic() - began


def small_files(directory, _):
    """Many small files: unpacked, read at once, read later, listed and removed."""
    tree, tar = os.path.join(directory, "tree"), archive()
    os.mkdir(tree)
    read = f"find {tree} -type f -print0 | xargs -0 cat >/dev/null"
    numbers = {"unpacked/s": took("tar", "-xf", tar, "-C", tree)}
    numbers["read/s"] = took("sh", "-c", read)
    # A mount has written them out by then, and what the kernel knew of names has expired.
    for name, words in (("read later/s", ("sh", "-c", read)), ("listed/s", ("ls", "-lR", tree)),
                        ("removed/s", ("rm", "-r", tree))):
        time.sleep(4)
        numbers[name] = took(*words, stdout=subprocess.DEVNULL)
    return {name: FILES / seconds for name, seconds in numbers.items()}


CRATE = """[package]
name = "small"
version = "0.1.0"
edition = "2021"
"""


def programs(directory, _):
    """A clone, a build, a copy of a tree, a database in one file, and a new cluster."""
    path = lambda *names: os.path.join(directory, *names)  # noqa: E731
    made = os.path.join(CACHE, f"speed-repository-{FILES}")
    if not os.path.exists(made):
        tree = made + ".new"
        shutil.rmtree(tree, ignore_errors=True)
        os.makedirs(tree)
        run("tar", "-xf", archive(), "-C", tree)
        # Without gc.auto=0, git packs the objects later, while an arm clones them.
        git = ("git", "-C", tree, "-c", "user.name=judge", "-c", "user.email=judge@localhost",
               "-c", "gc.auto=0")
        run("git", "init", "-q", tree)
        run(*git, "add", "-A")
        run(*git, "commit", "-q", "-m", "all")
        os.rename(tree, made)
    numbers = {"git clone, s": took("git", "clone", "-q", "--no-hardlinks", made, path("clone"))}
    numbers["rsync, s"] = took("rsync", "-a", "--exclude=.git", made + "/", path("copy"))
    os.makedirs(path("crate", "src"))
    with open(path("crate", "Cargo.toml"), "w") as file:
        file.write(CRATE)
    modules = range(60)
    for module in modules:
        with open(path("crate", "src", f"m{module}.rs"), "w") as file:
            file.write("#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\n"
                       f"pub struct S{module} {{ a: Vec<String>, b: Option<u64> }}\n")
    with open(path("crate", "src", "main.rs"), "w") as file:
        file.write("".join(f"pub mod m{module};\n" for module in modules) + "fn main() {}\n")
    build = ("cargo", "build", "-q", "--offline", "--target-dir", path("crate", "target"))
    environment = {name: value for name, value in os.environ.items() if "CARGO_" not in name}
    numbers["cargo build, s"] = took(*build, cwd=path("crate"), env=environment)
    numbers["SQLite, s"] = took(sqlite, path("database"))
    server = Server(path("cluster"))
    try:
        numbers["initdb, s"] = took(server.create)
    finally:
        server.end()
    return numbers


def sqlite(path):
    """Transactions, an index, changes of each row and a vacuum, as an application makes them."""
    chance, base = random.Random(5), sqlite3.connect(path, isolation_level=None)
    base.execute("create table t (a integer primary key, b integer, c text)")
    for number in range(200):
        base.execute("begin")
        base.executemany("insert into t (b, c) values (?, ?)",
                         [(chance.randrange(1 << 30), chance.randbytes(40).hex())
                          for _ in range(500 if number % 10 == 0 else 5)])
        base.execute("commit")
    base.execute("create index i on t (b)")
    base.execute("update t set c = c || b")
    base.execute("delete from t where b % 3 = 0")
    base.execute("vacuum")
    base.close()


COMMITS_FOR = 6


def databases(directory, _):
    """Commits a second of SQLite, synchronous=full: one database, and 32 with a thread each."""
    return {f"{journal} {count}, 1/s": commits(directory, journal, count)
            for journal in ("wal", "delete") for count in (1, 32)}


def commits(directory, journal, count):
    """Commits of one row of 100 bytes each, in all databases together."""
    ready, numbers = threading.Barrier(count), [0] * count

    def use(number):
        path = os.path.join(directory, f"{journal}-{count}-{number}")
        base = sqlite3.connect(path, isolation_level=None, timeout=60)
        base.execute(f"pragma journal_mode={journal}")
        base.execute("pragma synchronous=full")
        base.execute("create table t (a integer primary key, b blob)")
        add = "insert into t (b) values (zeroblob(100))"
        # An intent log is used from the third sync of a file on.
        for _ in range(8):
            base.execute(add)
        ready.wait()
        end = time.monotonic() + COMMITS_FOR
        while time.monotonic() < end:
            base.execute(add)
            numbers[number] += 1
        base.close()

    threads = [threading.Thread(target=use, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(numbers) / COMMITS_FOR


LARGE = 1 << 30


def large_file(directory, _):
    """1 GiB: written, read from the disk and from the cache; random reads, 32 at once."""
    path, data, buffer = os.path.join(directory, "large"), os.urandom(MIB), bytearray(MIB)

    def write():
        with open(path, "wb", buffering=0) as file:
            for _ in range(LARGE // MIB):
                file.write(data)
            os.fsync(file.fileno())

    def read():
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    numbers = {"write MiB/s": took(write)}
    # A mount closes it, and lets the kernel read it.
    time.sleep(4)
    run("sh", "-c", "sync; echo 3 >/proc/sys/vm/drop_caches")
    numbers["read from disk MiB/s"] = took(read)
    numbers["read from cache MiB/s"] = min(took(read) for _ in range(2))
    numbers = {name: 1024 / seconds for name, seconds in numbers.items()}
    fio = ["fio", "--name=r", f"--filename={path}", "--rw=randread", "--bs=4k", "--ioengine=libaio",
           "--iodepth=32", "--time_based", "--runtime=3", "--output-format=terse",
           "--terse-version=3", "--randrepeat=1", "--allow_mounted_write=0", "--readonly",
           # Its advice would drop the pages of plain files, and not those below a mount.
           "--invalidate=0"]
    numbers["random reads, 32 deep, 1/s"] = float(run(*fio).split(";")[7])
    return numbers


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
         "untar": untar, "pgbench": pgbench, "files": small_files, "programs": programs,
         "large": large_file, "databases": databases}

if __name__ == "__main__":
    name, directory, memory = sys.argv[1:]
    print(json.dumps(LOADS[name](directory, int(memory))))
