"""Names, handles, locks and directories."""

import errno
import fcntl
import multiprocessing
import os
import shutil
import subprocess
import threading
import time

from . import put, read, same, test


@test("an unlinked file can be used on")
def unlinked(d):
    file = put(f"{d}/file", b"a" * 100_000)
    os.unlink(f"{d}/file")
    os.pwrite(file, b"b" * 100_000, 50_000)
    os.fsync(file)
    os.ftruncate(file, 120_000)
    time.sleep(1.2)
    found = os.pread(file, 200_000, 0)
    return same("content", found, b"a" * 50_000 + b"b" * 70_000) or \
        same("links", os.fstat(file).st_nlink, 0) or same("names", os.listdir(d), [])


@test("a file written under one name is read under another")
def hard_links(d):
    one = put(f"{d}/one", b"first")
    os.link(f"{d}/one", f"{d}/two")
    two = os.open(f"{d}/two", os.O_RDWR)
    os.pwrite(one, b"ONE", 0)
    os.pwrite(two, b"TWO", 10_000)
    want = b"ONEst" + bytes(9995) + b"TWO"
    os.rename(f"{d}/one", f"{d}/three")
    return same("by the first", os.pread(one, 20_000, 0), want) or \
        same("by the second", os.pread(two, 20_000, 0), want) or \
        same("by its new name", read(f"{d}/three"), want)


@test("a file replaced by rename is two files")
def replaced(d):
    old = put(f"{d}/file", b"old" * 1000)
    new_ = put(f"{d}/new", b"new" * 5000)
    os.rename(f"{d}/new", f"{d}/file")
    os.pwrite(old, b"OLD", 0)
    os.pwrite(new_, b"NEW", 0)
    return same("the name", read(f"{d}/file"), b"NEW" + b"new" * 4999) or \
        same("the old file", os.pread(old, 9999, 0), b"OLD" + b"old" * 999)


@test("locks of several processes")
def locks(d):
    file = put(f"{d}/file", b"0" * 8)
    os.pwrite(file, b"%08d" % 0, 0)

    def count():
        mine = os.open(f"{d}/file", os.O_RDWR)
        for _ in range(100):
            fcntl.lockf(mine, fcntl.LOCK_EX)
            value = int(os.pread(mine, 8, 0))
            os.pwrite(mine, b"%08d" % (value + 1), 0)
            fcntl.lockf(mine, fcntl.LOCK_UN)
    processes = [multiprocessing.Process(target=count) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return same("counted", int(os.pread(file, 8, 0)), 400)


@test("a file without a name gets one")
def temporary(d):
    file = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o644)
    os.write(file, b"t" * 10_000)
    # With a directory, linkat follows the link.
    root = os.open("/", os.O_RDONLY)
    os.link(f"/proc/self/fd/{file}", f"{d}/named", src_dir_fd=root, follow_symlinks=True)
    os.close(root)
    os.close(file)
    return same("content", read(f"{d}/named"), b"t" * 10_000)


@test("a program is executed at once after it was written")
def executed(d):
    shutil.copyfile("/bin/true", f"{d}/program")
    os.chmod(f"{d}/program", 0o755)
    for _ in range(3):
        code = subprocess.run([f"{d}/program"]).returncode
        if code:
            return f"exit code {code}"
    with open(f"{d}/script", "w") as file:
        file.write("#!/bin/sh\nexit 7\n")
    os.chmod(f"{d}/script", 0o755)
    return same("exit code of a script", subprocess.run([f"{d}/script"]).returncode, 7)


@test("a large directory, read while names come and go")
def names(d):
    for n in range(1500):
        os.close(put(f"{d}/stays-{n}"))
    is_over = threading.Event()

    def change():
        n = 0
        while not is_over.is_set():
            os.close(put(f"{d}/goes-{n}"))
            os.unlink(f"{d}/goes-{n}")
            n += 1
    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(5):
            found = [name for name in os.listdir(d) if name.startswith("stays-")]
            if len(found) != 1500 or len(set(found)) != 1500:
                return f"{len(found)} names, {len(set(found))} different ones"
    finally:
        is_over.set()
        thread.join()
    return ""


@test("a read-only handle, and a file without permission to write")
def read_only(d):
    os.close(put(f"{d}/file", b"data", mode=0o444))
    file = os.open(f"{d}/file", os.O_RDONLY)
    try:
        os.write(file, b"x")
        return "a write to a handle for reading did not fail"
    except OSError as error:
        if error.errno != errno.EBADF:
            return str(error)
    new_ = put(f"{d}/new", b"abc", mode=0o200)
    os.pwrite(new_, b"Z", 1)
    return same("content", read(f"{d}/new"), b"aZc")


@test("a file system of its own numbers")
def numbers(d):
    stats = os.statvfs(d)
    file = put(f"{d}/file", b"x" * 100)
    os.mkdir(f"{d}/directory")
    status = os.fstat(file)
    listed = {entry.name: entry.inode() for entry in os.scandir(d)}
    return "no size" if not stats.f_blocks or not stats.f_files else \
        same("number in the directory", listed["file"], status.st_ino) or \
        same("links of a directory", os.stat(d).st_nlink, 3) or \
        same("block size", status.st_blksize > 0, True)
