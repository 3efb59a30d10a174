"""Writers that log each acknowledged operation, and the check that nothing of it is lost.

A writer appends two lines to its log for each operation: before it, its description; after it,
`done`. The log is outside the file system under test. The check repeats the log on bytes in memory
and compares. The one operation that was not acknowledged may be there, partly there, or not there.
Bytes name their operation, so that a mismatch says which one is lost.
"""

import json
import os
import random
import struct
import sys
import time

STRIPE = 3000  # bytes of a record in the shared file: not a page, so that writers share pages
LARGEST = 6 << 20


def content(writer, number, length):
    """The bytes of an operation: 8 of them say whose it is."""
    unit = struct.pack("<BBHI", 0xF0 | writer, 0xFB, 0, number)
    return (unit * (length // 8 + 1))[:length]


def name_of(data, at):
    """The operation whose bytes are at an offset; writes may start at any offset."""
    for start in range(at, max(at - 8, -1), -1):
        unit = data[start:start + 8]
        if len(unit) == 8 and unit[1] == 0xFB and unit[0] & 0xF0 == 0xF0 and unit[2:4] == b"\0\0":
            return f"operation {struct.unpack('<I', unit[4:])[0]} of writer {unit[0] & 15}"
    return "zeroes" if not any(data[at:at + 8]) else f"bytes {data[at:at + 8].hex()}"


class Writer:
    """Makes random operations on its own files, and on its stripes of a shared file."""

    def __init__(self, directory, log, me, writers, seed):
        self.directory, self.me, self.writers = directory, me, writers
        self.random = random.Random(seed)
        self.log = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC)
        self.number = 0
        self.files = {}
        self.model = {}
        self.shared = os.open(os.path.join(directory, "shared"), os.O_CREAT | os.O_RDWR)

    def say(self, **fields):
        os.write(self.log, json.dumps(fields).encode() + b"\n")

    def work(self, seconds):
        """Works until an operation fails, or for this time."""
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                self.step()
        except OSError as error:
            self.say(op="error", why=str(error), time=time.time())

    def step(self):
        self.number += 1
        name = f"{self.me}-{self.random.randrange(4)}"
        if name not in self.files:
            return self.do("create", name)
        size = len(self.model[name])
        op = self.random.choices(
            ["append", "write", "write-small", "shared", "truncate", "sync", "reopen", "read",
             "replace", "unlink", "extend"], [20, 20, 20, 20, 2, 1, 1, 6, 0.3, 0.2, 1])[0]
        length = self.random.choice([1, 100, 4096, 5000, 16384, 65536])
        at = self.random.randrange(size + 1)
        if size > LARGEST:
            op, at = "truncate", at // 4
        if op == "append":
            self.do(op, name, at=size, length=length)
        elif op == "write":
            self.do(op, name, at=at & ~4095 if length >= 4096 else at, length=length)
        elif op == "write-small":
            self.do("write", name, at=at, length=self.random.randrange(1, 700))
        elif op == "shared":
            slot = self.random.randrange(800)
            self.do(op, "shared", at=(slot * self.writers + self.me) * STRIPE, length=STRIPE)
        elif op == "truncate":
            self.do(op, name, at=at)
        elif op == "extend":
            self.do("truncate", name, at=size + length)
        elif op == "replace":
            self.do(op, name, at=0, length=length)
        elif op == "read":
            self.read(name, at, length)
        else:
            self.do(op, name)

    def read(self, name, at, length):
        found = os.pread(self.files[name], length, at)
        wrong = difference(found, bytes(self.model[name][at:at + length]), at)
        if wrong:
            self.say(op="wrong", why=f"{name}: {wrong}, before operation {self.number}")

    def do(self, op, name, **fields):
        self.say(n=self.number, op=op, file=name, **fields)
        path = os.path.join(self.directory, name)
        data = content(self.me, self.number, fields.get("length", 0))
        if op == "create":
            self.open(name, os.O_CREAT | os.O_TRUNC)
        elif op == "append":
            self.put(self.files[name], data)
        elif op == "write":
            self.put(self.files[name], data, fields["at"])
        elif op == "shared":
            self.put(self.shared, data, fields["at"])
        elif op == "truncate":
            os.ftruncate(self.files[name], fields["at"])
        elif op == "sync":
            self.random.choice([os.fsync, os.fdatasync])(self.files[name])
        elif op == "reopen":
            os.close(self.files[name])
            self.open(name, 0)
        elif op == "replace":
            with open(path + ".new", "wb") as file:
                file.write(data)
            os.rename(path + ".new", path)
            os.close(self.files[name])
            self.open(name, 0)
        elif op == "unlink":
            os.unlink(path)
            os.close(self.files.pop(name))
        self.say(op="done")
        if op != "shared":
            apply(self.model, self.me, {"n": self.number, "op": op, "file": name, **fields})

    def open(self, name, flags):
        path = os.path.join(self.directory, name)
        self.files[name] = os.open(path, os.O_RDWR | flags, 0o644)

    def put(self, file, data, at=None):
        if at is None:
            at = os.lseek(file, 0, os.SEEK_END)
        wrote = os.pwrite(file, data, at)
        if wrote != len(data):
            raise OSError(f"a write of {len(data)} bytes returned {wrote}")


def apply(model, writer, entry):
    """Makes an operation on bytes in memory."""
    op, name = entry["op"], entry["file"]
    if op in ("create", "replace"):
        model[name] = bytearray(content(writer, entry["n"], entry.get("length", 0)))
    elif op in ("append", "write"):
        data, file = content(writer, entry["n"], entry["length"]), model[name]
        if entry["at"] > len(file):
            file.extend(bytes(entry["at"] - len(file)))
        file[entry["at"]:entry["at"] + len(data)] = data
    elif op == "truncate":
        file, size = model[name], entry["at"]
        if size < len(file):
            del file[size:]
        else:
            file.extend(bytes(size - len(file)))
    elif op == "unlink":
        del model[name]


def difference(found, expected, base=0):
    """Says where two contents first differ; an empty text if they do not."""
    if found == expected:
        return ""
    if len(found) != len(expected):
        return f"{len(found)} bytes from {base}, not {len(expected)}"
    at = next(at for at, pair in enumerate(zip(found, expected)) if pair[0] != pair[1])
    return (f"at {base + at}: {name_of(found, at)} instead of {name_of(expected, at)}; "
            f"{sum(a != b for a, b in zip(found, expected))} bytes differ")


class Log:
    """What a writer logged."""

    def __init__(self, path, writer):
        self.writer, self.done, self.open, self.error, self.wrong = writer, [], None, None, None
        with open(path, "rb") as file:
            for line in file.read().split(b"\n"):
                entry = json.loads(line) if line else {}
                if entry.get("op") == "done":
                    self.done.append(self.open)
                    self.open = None
                elif entry.get("op") == "error":
                    self.error = entry
                elif entry.get("op") == "wrong":
                    self.wrong = self.wrong or entry["why"]
                elif entry:
                    self.open = entry

    def check(self, directory):
        """Compares the files with the log; says what differs."""
        model, shared = {}, {}
        for entry in self.done:
            if entry["op"] == "shared":
                shared[entry["at"]] = entry
            else:
                apply(model, self.writer, entry)
        return self.files(directory, model) or self.stripes(directory, shared)

    def files(self, directory, model):
        there = {name for name in os.listdir(directory) if name.startswith(f"{self.writer}-")}
        open_ = self.open["file"] if self.open else None
        for name in sorted(there | set(model)):
            if name == open_:
                wrong = self.unsure(directory, name, model)
            elif name.endswith(".new") and open_ and name.startswith(open_):
                continue
            elif name not in there or name not in model:
                wrong = "missing" if name in model else "there, though unlinked"
            else:
                wrong = difference(read(directory, name), model[name])
            if wrong:
                return f"{name}: {wrong}"
        return ""

    def unsure(self, directory, name, model):
        """Checks the file whose last operation was not acknowledged."""
        old, new = dict(model), {key: bytearray(value) for key, value in model.items()}
        apply(new, self.writer, self.open)
        old, new = old.get(name), new.get(name)
        try:
            found = read(directory, name)
        except FileNotFoundError:
            return "" if old is None or new is None else "missing"
        if found in (old, new):
            return ""
        if old is None or new is None or self.open["op"] not in ("append", "write"):
            return f"neither as before nor as after {self.open}, {len(found)} bytes long"
        # A part of the write: every byte is old or new, and so is the size.
        if not len(old) <= len(found) <= len(new):
            return f"{len(found)} bytes long, not {len(old)} to {len(new)}"
        old, new = old.ljust(len(found), b"\0"), new[:len(found)]
        mixed = bytearray(after if byte == after else before
                          for byte, before, after in zip(found, old, new))
        return difference(found, mixed)

    def stripes(self, directory, shared):
        found = read(directory, "shared")
        for at, entry in shared.items():
            if self.open and self.open["op"] == "shared" and self.open["at"] == at:
                continue
            data = content(self.writer, entry["n"], STRIPE)
            if found[at:at + STRIPE] != data:
                return f"shared: {difference(found[at:at + STRIPE], data, at)}"
        return ""


def read(directory, name):
    with open(os.path.join(directory, name), "rb") as file:
        return bytearray(file.read())


if __name__ == "__main__":
    directory, log, me, writers, seed, seconds = sys.argv[1:]
    Writer(directory, log, int(me), int(writers), seed).work(float(seconds))
