"""A tree with everything that a tree can have, made from a list, and compared with it."""

import hashlib
import os
import random
import stat
import struct

HOLE = 256 << 10


def acl(user, bits):
    """The bytes of an access control list with one named user."""
    entries = [(1, 6, 0xFFFFFFFF), (2, bits, user), (4, 4, 0xFFFFFFFF), (0x10, 6, 0xFFFFFFFF),
               (0x20, 0, 0xFFFFFFFF)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def listed(files):
    """The tree: path, as bytes, to its properties. A path is after its directory."""
    chance = random.Random(11)
    tree = {b"": {"kind": "directory", "mode": 0o755}}

    def add(path, kind, **fields):
        tree[path] = {"kind": kind, "mode": 0o644, "time": time(chance), **fields}

    for number in range(files // 20 + 1):
        add(b"d%d" % number, "directory", mode=chance.choice([0o755, 0o700, 0o2775, 0o1777]))
    for number in range(files):
        size = chance.choice([0, 1, 511, 4095, 4096, 4097, 10_000, 100_000])
        add(b"d%d/file-%d" % (number // 20, number), "file", data=[(0, chance.randbytes(size))],
            size=size, mode=chance.choice([0o644, 0o600, 0o755, 0o4755, 0o444, 0o000]),
            owner=chance.choice([(0, 0), (1, 1), (65534, 65534), (70_000, 80_000)]))
    names = [b"x" * 255, "\u00e4\u65e5\u672c\U0001f600".encode(), b"\xff\xfe not UTF-8",
             b"new\nline", b"-rf", b" spaces ", b"quote'\"`$(x)", b"back\\slash", b"tab\t\x01\x7f"]
    add(b"names", "directory", mode=0o755)
    for name in names:
        add(b"names/" + name, "file", data=[(0, name)], size=len(name))
        add(b"names/of " + name[:200], "directory", mode=0o755)
    deep = b"deep"
    for level in range(60):
        add(deep, "directory", mode=0o755)
        deep += b"/level-%d" % level
    add(deep, "file", data=[(0, b"bottom")], size=6)
    add(b"holes", "directory", mode=0o755)
    for number in range(6):
        pieces = [(place * HOLE, chance.randbytes(5000)) for place in range(number % 2, 12, 3)]
        add(b"holes/%d" % number, "file", data=pieces, size=12 * HOLE + number * 1000, sparse=True)
    add(b"holes/only", "file", data=[], size=40 << 20, sparse=True)
    add(b"links", "directory", mode=0o755)
    add(b"links/first", "file", data=[(0, b"linked")], size=6)
    for number in range(5):
        tree[b"links/hard-%d" % number] = {"kind": "hard", "of": b"links/first"}
    for number, target in enumerate([b"first", b"/nowhere/at all", b"t" * 1000, b"../d0"]):
        add(b"links/soft-%d" % number, "link", target=target, mode=0o777)
    add(b"special", "directory", mode=0o755)
    add(b"special/fifo", "fifo")
    add(b"special/null", "device", device=os.makedev(1, 3))
    add(b"attributes", "directory", mode=0o755)
    for number, attributes in enumerate([
            {"user.short": b"value", "user.empty": b"", "trusted.zeroes": b"\0\xff" * 20},
            {"user.long": chance.randbytes(1500)},
            {f"user.number-{n}": b"%d" % n for n in range(30)},
            {"security.capability": struct.pack("<5I", 0x02000001, 0x400, 0, 0, 0)},
            {"system.posix_acl_access": acl(1, 7)}]):
        add(b"attributes/%d" % number, "file", data=[(0, b"attributed")], size=10,
            attributes=attributes, mode=0o660 if number == 4 else 0o644)
    add(b"attributes/directory", "directory", mode=0o760,
        attributes={"user.of": b"directory", "system.posix_acl_default": acl(1, 5)})
    return tree


def time(chance):
    """A time of change in nanoseconds."""
    return chance.choice([0, 1, 999_999_999, 1_000_000_001,
                          chance.randrange(1 << 31) * 1_000_000_000 + chance.randrange(10 ** 9)])


def make(top, tree):
    """Makes the tree; times of directories last, because names in them change these."""
    for path, of in tree.items():
        full = os.path.join(top, path)
        kind = of["kind"]
        if kind == "directory":
            os.makedirs(full, exist_ok=True)
        elif kind == "file":
            write(full, of)
        elif kind == "hard":
            os.link(os.path.join(top, of["of"]), full)
        elif kind == "link":
            os.symlink(of["target"], full)
        elif kind == "fifo":
            os.mkfifo(full)
        elif kind == "device":
            os.mknod(full, stat.S_IFCHR | 0o644, of["device"])
        if kind in ("hard",):
            continue
        if "owner" in of:
            os.chown(full, *of["owner"])
        if kind != "link":
            os.chmod(full, of["mode"])
        for name, value in of.get("attributes", {}).items():
            os.setxattr(full, name, value)
    for path, of in reversed(tree.items()):
        if "time" in of:
            full = os.path.join(top, path)
            os.utime(full, ns=(of["time"], of["time"]), follow_symlinks=False)


def write(full, of):
    with open(full, "wb") as file:
        for at, data in of["data"]:
            file.seek(at)
            file.write(data)
        file.truncate(of["size"])


def differences(top, tree):
    """Compares a tree with the list; returns what differs, one line each."""
    there = {b""}
    for root, directories, names in os.walk(top):
        for name in directories + names:
            there.add(os.path.relpath(os.path.join(root, name), top))
    found = [f"{path!r} is missing" for path in tree if path not in there]
    found += [f"{path!r} should not be there" for path in there if path not in tree]
    groups = {}
    for path, of in tree.items():
        if path not in there:
            continue
        full = os.path.join(top, path)
        status = os.lstat(full)
        name = of["of"] if of["kind"] == "hard" else path
        groups.setdefault(name, set()).add(status.st_ino)
        if of["kind"] != "hard":
            found += [f"{path!r}: {one}" for one in of_one(full, of, status)]
    found += [f"{path!r}: its hard links are {len(inodes)} files"
              for path, inodes in groups.items() if len(inodes) > 1]
    return found


def of_one(full, of, status):
    """What differs of one file or directory."""
    kinds = {"directory": stat.S_ISDIR, "file": stat.S_ISREG, "link": stat.S_ISLNK,
             "fifo": stat.S_ISFIFO, "device": stat.S_ISCHR}
    if not kinds[of["kind"]](status.st_mode):
        return [f"is no {of['kind']}"]
    pairs = [("owner", (status.st_uid, status.st_gid), of.get("owner", (0, 0)))]
    if of["kind"] != "link":
        pairs.append(("mode", oct(stat.S_IMODE(status.st_mode)), oct(of["mode"])))
        attributes = {name: os.getxattr(full, name) for name in os.listxattr(full)}
        pairs.append(("attributes", known(attributes), known(of.get("attributes", {}))))
    if "time" in of:
        pairs.append(("time of change", status.st_mtime_ns, of["time"]))
    if of["kind"] == "link":
        pairs.append(("target", os.readlink(full), of["target"]))
    if of["kind"] == "device":
        pairs.append(("device", status.st_rdev, of["device"]))
    if of["kind"] == "file":
        pairs.append(("size", status.st_size, of["size"]))
        pairs.append(("content", hashed(full), expected(of)))
        if of.get("sparse"):
            data = sum(len(data) for _, data in of["data"])
            most = data + 64 * 1024 * (len(of["data"]) + 1)
            is_sparse = status.st_blocks * 512 <= most
            pairs.append(("holes", f"{status.st_blocks * 512} allocated" if not is_sparse else "",
                          ""))
    return [f"{name} is {str(found)[:120]}, not {str(want)[:120]}"
            for name, found, want in pairs if found != want]


def known(attributes):
    """Attributes with access control lists as entries; only those of users have an id.

    XFS lists its lists a second time, as attributes of its own.
    """
    def entries(value):
        found = list(struct.iter_unpack("<HHI", value[4:]))
        return [(tag, bits, user if tag in (2, 8) else None) for tag, bits, user in found]

    return {name: entries(value) if "posix_acl" in name else value
            for name, value in sorted(attributes.items())
            if not name.startswith("trusted.SGI_ACL_")}


def hashed(full):
    with open(full, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def expected(of):
    data = bytearray(of["size"])
    for at, piece in of["data"]:
        data[at:at + len(piece)] = piece
    return hashlib.sha256(data[:of["size"]]).hexdigest()
