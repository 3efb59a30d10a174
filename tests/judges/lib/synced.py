"""A writer that syncs, and logs what each sync made durable; and the check after a crash.

Each promise is logged after its sync returned. A later promise about the same name replaces it.
Contents name their version, so that an older one is told from a newer one, which is right, too.
"""

import json
import mmap
import os
import random
import sys
import time

SLOT = 4096
WAYS = {"appended": "fsync and fdatasync after an append", "slots": "fdatasync after an overwrite",
        "synchronous": "O_DSYNC", "by-flag": "RWF_DSYNC", "mapped": "msync",
        "replaced": "fsync, rename, fsync of the directory", "new": "fsync of a new file",
        "removed": "fsync of the directory after an unlink"}


def version_bytes(number, length):
    unit = b"%011d\n" % number
    return (unit * (length // len(unit) + 1))[:length]


class Writer:
    def __init__(self, directory, log, seed):
        self.directory, self.random = directory, random.Random(seed)
        os.makedirs(directory, exist_ok=True)
        self.log = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.top = os.open(directory, os.O_RDONLY)
        self.number, self.lengths, self.open = 0, {}, {}

    def promise(self, **fields):
        fields["at_time"] = time.monotonic()
        os.write(self.log, json.dumps(fields).encode() + b"\n")

    def work(self):
        kinds = [self.appended, self.synchronous, self.by_flag, self.slot, self.mapped,
                 self.replaced, self.new, self.removed, self.unsynced]
        while True:
            self.number += 1
            self.random.choice(kinds)()

    def file(self, name, flags=0):
        if name not in self.open:
            path = os.path.join(self.directory, name)
            self.open[name] = os.open(path, os.O_CREAT | os.O_RDWR | flags, 0o644)
        return self.open[name]

    def append(self, name, flags):
        file, start = self.file(name, flags), self.lengths.get(name, 0)
        length = self.random.choice([10, 700, 4096, 9000])
        # Bytes of an append are those of their offset.
        os.pwrite(file, version_bytes(7, start + length)[start:], start)
        self.lengths[name] = start + length
        return file

    def appended(self):
        file = self.append("appended", 0)
        self.random.choice([os.fsync, os.fdatasync])(file)
        self.promise(kind="appended", name="appended", length=self.lengths["appended"])

    def synchronous(self):
        self.append("synchronous", os.O_DSYNC)
        self.promise(kind="appended", name="synchronous", length=self.lengths["synchronous"])

    def by_flag(self):
        file, start = self.file("by-flag"), self.lengths.get("by-flag", 0)
        os.pwritev(file, [version_bytes(7, start + 900)[start:]], start, os.RWF_DSYNC)
        self.lengths["by-flag"] = start + 900
        self.promise(kind="appended", name="by-flag", length=start + 900)

    def mapped(self):
        file, at = self.file("mapped"), self.random.randrange(50)
        if "mapped" not in self.lengths:
            os.posix_fallocate(file, 0, 50 * SLOT)
            os.fsync(file)
            self.lengths["mapped"] = mmap.mmap(file, 50 * SLOT)
        self.lengths["mapped"][at * SLOT:(at + 1) * SLOT] = version_bytes(self.number, SLOT)
        self.lengths["mapped"].flush(at * SLOT, SLOT)
        self.promise(kind="slot", name="mapped", at=at, version=self.number)

    def slot(self):
        at = self.random.randrange(50)
        file = self.file("slots")
        os.pwrite(file, version_bytes(self.number, SLOT), at * SLOT)
        os.fdatasync(file)
        self.promise(kind="slot", name="slots", at=at, version=self.number)

    def replaced(self):
        name, path = f"replaced-{self.random.randrange(5)}", os.path.join(self.directory, "next")
        file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        os.write(file, version_bytes(self.number, 6000))
        os.fsync(file)
        os.close(file)
        os.rename(path, os.path.join(self.directory, name))
        os.fsync(self.top)
        self.promise(kind="replaced", name=name, version=self.number)

    def new(self):
        name = f"new-{self.number}"
        file = os.open(os.path.join(self.directory, name), os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(file, version_bytes(self.number, 3000))
        os.fsync(file)
        os.close(file)
        self.promise(kind="replaced", name=name, version=self.number)

    def removed(self):
        names = [name for name in os.listdir(self.directory) if name.startswith("new-")]
        if names:
            name = self.random.choice(names)
            self.promise(kind="any", name=name)
            os.unlink(os.path.join(self.directory, name))
            os.fsync(self.top)
            self.promise(kind="removed", name=name)

    def unsynced(self):
        """Dirty data besides, about which nothing is promised."""
        os.pwrite(self.file("unsynced"), b"u" * 50_000, self.random.randrange(1 << 22))


def broken(directory, log, until):
    """Returns the number of promises of a log, and the broken ones by their way of syncing."""
    promises = {}
    with open(log, "rb") as file:
        for line in file.read().split(b"\n")[:-1]:
            one = json.loads(line)
            # A sync that returns while the file system stops is none, also on plain files.
            if one["at_time"] > until and one["kind"] != "any":
                continue
            promises[one["name"], one.get("at")] = one
    found = {}
    for one in promises.values():
        if one["kind"] == "any":
            continue
        path, name = os.path.join(directory, one["name"]), one["name"]
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            data = None
        if one["kind"] == "removed":
            wrong = "" if data is None else "is there again"
        elif data is None:
            wrong = "is missing"
        elif one["kind"] == "appended":
            want = version_bytes(7, one["length"])
            wrong = "" if data[:len(want)] == want else \
                f"has {len(data)} bytes, or other ones; {len(want)} were synced"
        else:
            wrong = older(data if one["kind"] == "replaced" else
                          data[one["at"] * SLOT:(one["at"] + 1) * SLOT], one["version"])
        if wrong:
            way = "removed" if one["kind"] == "removed" else \
                name if name in WAYS else name.split("-")[0]
            found.setdefault(way, f"{name} {wrong}")
    return len(promises), found


def older(data, version):
    """Says if bytes are not this version, and not one whole later version."""
    try:
        there = int(data[:11])
    except ValueError:
        return f"has other bytes than version {version}: {data[:16]!r}, {len(data)} bytes"
    if there < version:
        return f"is version {there}; {version} was synced"
    return "" if data == version_bytes(there, len(data)) or there > version else \
        f"has not all bytes of version {version}"


if __name__ == "__main__":
    Writer(*sys.argv[1:]).work()
