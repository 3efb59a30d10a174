"""Times and modes, which a delayed write must not change."""

import multiprocessing
import os
import stat
import time

from . import put, same, test


@test("the time of change stays after the write")
def times_stay(d):
    path = f"{d}/file"
    file = put(path, b"x" * 10000)
    now = os.fstat(file).st_mtime_ns
    if abs(time.time_ns() - now) > 10 ** 9:
        return f"the time is {time.time_ns() - now} ns old"
    os.close(file)
    before = os.stat(path)
    time.sleep(2.5)
    after = os.stat(path)
    return same("time of change after 2.5 s", after.st_mtime_ns, now) or \
        same("time of status after 2.5 s", after.st_ctime_ns, before.st_ctime_ns)


@test("the time of change of an open file stays after fsync")
def times_stay_synced(d):
    file = put(f"{d}/file", b"x" * 10000)
    now = os.fstat(file).st_mtime_ns
    time.sleep(0.3)
    os.fsync(file)
    return same("time of change", os.fstat(file).st_mtime_ns, now)


@test("each write moves the time of change")
def times_move(d):
    file = put(f"{d}/file", b"x")
    for turn in range(5):
        before = os.stat(f"{d}/file")
        time.sleep(0.05)
        os.pwrite(file, b"y", turn)
        after = os.stat(f"{d}/file")
        if after.st_mtime_ns <= before.st_mtime_ns or after.st_ctime_ns <= before.st_ctime_ns:
            return f"write {turn}: {before.st_mtime_ns} to {after.st_mtime_ns}"
    return ""


@test("a set time stays, though data was not written out")
def set_time_stays(d):
    file = put(f"{d}/file", b"x" * 5000)
    os.utime(file, ns=(5, 7))
    os.close(file)
    time.sleep(1.5)
    return same("time of change", os.stat(f"{d}/file").st_mtime_ns, 7)


@test("a write removes setuid for a user")
def drops_setuid(d):
    path = f"{d}/file"
    os.close(put(path, b"x" * 100))
    os.chown(path, 1, 1)
    os.chmod(path, 0o6755)
    os.chmod(d, 0o777)

    def write():
        os.setgid(1)
        os.setuid(1)
        with open(path, "r+b") as file:
            file.write(b"changed")
    process = multiprocessing.Process(target=write)
    process.start()
    process.join()
    time.sleep(1.5)
    return same("exit code", process.exitcode, 0) or \
        same("mode", oct(stat.S_IMODE(os.stat(path).st_mode)), oct(0o755))


@test("a write removes a capability, and a later one stays")
def capability(d):
    path, value = f"{d}/file", bytes.fromhex("0100000200040000000000000000000000000000")
    file = put(path, b"x" * 9000)
    os.setxattr(path, "security.capability", value)
    os.pwrite(file, b"y", 5)
    if "security.capability" in os.listxattr(path):
        return "it is still there after a write"
    os.setxattr(path, "security.capability", value)
    os.close(file)
    time.sleep(1.5)
    return "" if "security.capability" in os.listxattr(path) else "it went without a write"
