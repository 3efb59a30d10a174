"""Bytes: maps, holes, ends, limits, copies, and several writers."""

import errno
import mmap
import multiprocessing
import os
import random
import resource
import signal
import socket
import subprocess
import threading
import time

from . import fallocate, put, read, same, test


@test("appends of several processes do not overlap")
def appends(d):
    path = f"{d}/file"
    os.close(put(path))

    def append(who):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        for n in range(400):
            line = f"{who}:{n}:".encode()
            os.write(file, line + b"." * (97 - len(line) + n % 3000) + b"\n")
    processes = [multiprocessing.Process(target=append, args=(who,)) for who in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    lines = read(path).split(b"\n")[:-1]
    wrong = [line for line in lines
             if len(line) != 97 + int(line.split(b":")[1] or b"0") % 3000]
    return f"{len(lines)} lines, {len(wrong)} broken" if len(lines) != 1600 or wrong else ""


@test("size and bytes are seen by another process at once")
def seen(d):
    file, chance, size = put(f"{d}/file"), random.Random(1), 0
    for _ in range(30):
        data = chance.randbytes(chance.randrange(1, 9000))
        os.pwrite(file, data, size)
        size += len(data)
        found = subprocess.run(["stat", "-c", "%s", f"{d}/file"], stdout=subprocess.PIPE).stdout
        if int(found) != size:
            return f"size {int(found)}, not {size}"
    shown = subprocess.run(["cat", f"{d}/file"], stdout=subprocess.PIPE).stdout
    return "" if len(shown) == size else f"cat printed {len(shown)} bytes of {size}"


@test("a shared map and calls see each other")
def maps(d):
    file = put(f"{d}/file", bytes(40960))
    with mmap.mmap(file, 40960) as one:
        for n in range(50):
            at = n * 800
            one[at:at + 4] = b"MAP%d" % (n % 10)
            if os.pread(file, 4, at) != b"MAP%d" % (n % 10):
                return f"read does not see the map at {at}"
            os.pwrite(file, b"CALL", at + 100)
            if one[at + 100:at + 104] != b"CALL":
                return f"the map does not see the write at {at + 100}"
        one.flush()
    os.close(file)
    data = read(f"{d}/file")
    return same("calls", data.count(b"CALL"), 50) or same("maps", data.count(b"MAP"), 50)


@test("a shared map of two processes")
def maps_of_two(d):
    file = put(f"{d}/file", bytes(8192))
    one = mmap.mmap(file, 8192)

    def other():
        two = mmap.mmap(os.open(f"{d}/file", os.O_RDWR), 8192)
        while two[0] == 0:
            time.sleep(0.001)
        two[5000] = two[0] + 1
    process = multiprocessing.Process(target=other)
    process.start()
    one[0] = 7
    process.join(10)
    if process.is_alive():
        process.kill()
        return "the other process does not see it after 10 s"
    return same("byte", one[5000], 8)


@test("a map beyond the end dies of SIGBUS")
def bus(d):
    def touch():
        file = put(f"{d}/file", bytes(8192))
        one = mmap.mmap(file, 8192)
        os.ftruncate(file, 100)
        one[5000]
    process = multiprocessing.Process(target=touch)
    process.start()
    process.join()
    return same("exit code", process.exitcode, -signal.SIGBUS)


@test("a shrunk and extended file has zeroes")
def zeroes(d):
    file = put(f"{d}/file", b"x" * 20_000)
    for size in (10_001, 5_000, 4_096, 1):
        os.ftruncate(file, size)
        os.ftruncate(file, 20_000)
        found = os.pread(file, 30_000, 0)
        if found != b"x" * size + bytes(20_000 - size):
            return f"after {size}: {found.count(b'x')} bytes are not zero"
    return ""


@test("fallocate in its modes")
def modes(d):
    file = put(f"{d}/file", b"x" * 65_536)
    if wrong := fallocate(file, 3, 5000, 20_000):
        return f"punch: {errno.errorcode[wrong]}"
    want = b"x" * 5000 + bytes(20_000) + b"x" * 40_536
    if os.pread(file, 99_999, 0) != want:
        return "punch: other bytes"
    if wrong := fallocate(file, 0x10, 30_000, 9_000):
        return f"zero: {errno.errorcode[wrong]}"
    want = want[:30_000] + bytes(9_000) + want[39_000:]
    if wrong := fallocate(file, 1, 60_000, 100_000):
        return f"keep the size: {errno.errorcode[wrong]}"
    if wrong := fallocate(file, 0, 60_000, 40_000):
        return f"allocate: {errno.errorcode[wrong]}"
    found = os.pread(file, 200_000, 0)
    return same("size", os.fstat(file).st_size, 100_000) or \
        ("" if found == want + bytes(100_000 - 65_536) else "other bytes")


@test("holes are found by SEEK_HOLE and SEEK_DATA")
def holes(d):
    file = put(f"{d}/file")
    os.pwrite(file, b"d" * 65_536, 1 << 20)
    os.pwrite(file, b"d" * 65_536, 3 << 20)
    os.ftruncate(file, 5 << 20)
    found, at = [], 0
    try:
        while True:
            data = os.lseek(file, at, os.SEEK_DATA)
            at = os.lseek(file, data, os.SEEK_HOLE)
            found.append((data, at))
    except OSError as error:
        if error.errno != errno.ENXIO:
            return str(error)
    covered = [(place << 20, (place << 20) + 65_536) for place in (1, 3)]
    missed = [one for one in covered
              if not any(start <= one[0] and one[1] <= end for start, end in found)]
    return f"data at {covered}, found at {found}" if missed else ""


@test("a new file with a hole takes its place only for data")
def blocks(d):
    file = put(f"{d}/file")
    os.pwrite(file, b"d" * 4096, 100 << 20)
    os.fsync(file)
    os.close(file)
    used = os.stat(f"{d}/file").st_blocks * 512
    return f"{used} bytes are allocated" if used > 8 << 20 else ""


@test("large offsets")
def offsets(d):
    file = put(f"{d}/file")
    os.pwrite(file, b"far", 1 << 41)
    os.pwrite(file, b"near", 0)
    os.fsync(file)
    try:
        os.pwrite(file, b"x", (1 << 63) - 1)
        return "a write at the largest offset did not fail"
    except OSError as error:
        if error.errno not in (errno.EFBIG, errno.EINVAL):
            return f"a write at the largest offset: {error}"
    return same("size", os.fstat(file).st_size, (1 << 41) + 3) or \
        same("bytes", os.pread(file, 9, 1 << 41), b"far") or \
        same("between", os.pread(file, 8, 1 << 35), bytes(8))


@test("the limit of a file's size")
def limit(d):
    def write():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        file = put(f"{d}/file")
        first = os.pwrite(file, b"x" * 8000, 0)
        second = os.pwrite(file, b"x" * 8000, 8000)
        try:
            os.pwrite(file, b"x", 10_000)
            os._exit(1)
        except OSError as error:
            os._exit(0 if (first, second, error.errno) == (8000, 2000, errno.EFBIG) else 2)
    process = multiprocessing.Process(target=write)
    process.start()
    process.join()
    return same("exit code", process.exitcode, 0) or \
        same("size", os.stat(f"{d}/file").st_size, 10_000)


@test("copies inside the kernel")
def copies(d):
    data = random.Random(2).randbytes(3_000_000)
    one = put(f"{d}/one", data)
    two, three = put(f"{d}/two"), put(f"{d}/three")
    done = 0
    while done < len(data):
        done += os.copy_file_range(one, two, len(data) - done, done, done)
    if os.pread(two, 1 << 22, 0) != data:
        return "copy_file_range: other bytes"
    at = 0
    while at < len(data):
        at += os.sendfile(three, one, at, len(data) - at)
    if os.pread(three, 1 << 22, 0) != data:
        return "sendfile: other bytes"
    left, right = socket.socketpair()
    threading.Thread(target=lambda: (left.sendfile(open(f"{d}/two", "rb")), left.close())).start()
    found = b""
    while piece := right.recv(1 << 16):
        found += piece
    return "" if found == data else "sendfile to a socket: other bytes"


@test("direct I/O, aligned or not, between other calls")
def direct(d):
    chance, size = random.Random(3), 1 << 20
    model, file = bytearray(size), put(f"{d}/file", bytes(size))
    straight = os.open(f"{d}/file", os.O_RDWR | os.O_DIRECT)
    buffer = mmap.mmap(-1, 65_536)
    for n in range(300):
        at, length = chance.randrange(240) * 4096, chance.randrange(1, 16) * 4096
        kind = chance.randrange(4)
        if kind == 0:
            buffer[:length] = chance.randbytes(length)
            os.pwritev(straight, [memoryview(buffer)[:length]], at)
            model[at:at + length] = buffer[:length]
        elif kind == 1:
            data = chance.randbytes(length - chance.randrange(4096))
            os.pwrite(file, data, at + 5)
            model[at + 5:at + 5 + len(data)] = data
        elif kind == 2:
            got = os.preadv(straight, [memoryview(buffer)[:length]], at)
            if buffer[:got] != model[at:at + got]:
                return f"operation {n}: a direct read differs at {at}"
        elif os.pread(file, length, at + 3) != model[at + 3:at + 3 + length]:
            return f"operation {n}: a read differs at {at + 3}"
    return "" if read(f"{d}/file") == model else "it differs at the end"


@test("several threads read and write one file")
def threads(d):
    file, failed = put(f"{d}/file", bytes(1 << 20)), []

    def work(who):
        chance = random.Random(who)
        for n in range(300):
            at = (chance.randrange(64) * 4 + who) * 4096 + 17
            data = bytes([who + 1, n % 251]) * 2000
            os.pwrite(file, data, at)
            if os.pread(file, len(data), at) != data:
                failed.append((who, n))
    many = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()
    return f"{len(failed)} reads are not as written: {failed[:3]}" if failed else ""


@test("a file is truncated while others read and append")
def truncated(d):
    file, path, ends = put(f"{d}/file"), f"{d}/file", time.monotonic() + 1.5

    def append():
        mine = os.open(path, os.O_WRONLY | os.O_APPEND)
        while time.monotonic() < ends:
            os.write(mine, b"A" * 3000)
    process = multiprocessing.Process(target=append)
    process.start()
    wrong = ""
    while time.monotonic() < ends and not wrong:
        os.ftruncate(file, 0)
        found = os.pread(file, 200_000, 0)
        if found.strip(b"A"):
            wrong = f"{len(found.strip(b'A'))} bytes that nobody wrote"
    process.join()
    return wrong


@test("a full file system")
def full(d):
    if "JUDGES_DEVICE" not in os.environ:
        return ""  # Alone, this judge fills no file system of somebody.
    ballast = put(f"{d}/ballast")
    while True:
        stats = os.statvfs(d)
        # Root uses the reserve of ext4, too.
        free = stats.f_bavail if os.geteuid() else stats.f_bfree
        left = free * stats.f_bsize - (30 << 20)
        if left < 1 << 20:
            break
        os.posix_fallocate(ballast, os.fstat(ballast).st_size, left // 2 or left)
    file, wrote, failed = put(f"{d}/file"), 0, None
    piece = random.Random(6).randbytes(1 << 16)
    try:
        while wrote < 80 << 20:
            wrote += os.write(file, piece)
        os.fsync(file)
    except OSError as error:
        failed = error
    if not failed or failed.errno != errno.ENOSPC:
        return f"{wrote} bytes fit into 30 MiB: {failed}"
    found = read(f"{d}/file")[:wrote]
    if found != (piece * (len(found) // len(piece) + 1))[:len(found)]:
        return "other bytes in the full file system"
    os.ftruncate(ballast, 0)
    os.fsync(ballast)
    size = os.fstat(file).st_size
    try:
        os.fsync(file)  # It may report the error once more.
    except OSError:
        pass
    os.pwrite(file, b"afterwards", size)
    os.fsync(file)
    return same("the end", os.pread(file, 20, size), b"afterwards")
