"""Files of cases, and calls on them."""

import ctypes
import mmap
import os
import struct

from ..edges import LIBC, fallocate
from .identity import FOREIGN, GROUP, MAPPED, MEMBER, USER

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
CAPABILITY = "security.capability"
# CAP_NET_BIND_SERVICE, permitted and effective.
CAPABLE = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)

# The last one is known to a user namespace, and foreign to all.
GROUPS = {"own": GROUP, "member": MEMBER, "foreign": FOREIGN, "mapped": MAPPED + 5}
STATES = ["found", "small", "dirty"]
LARGE = 300_000


def access_list(user=6, named=None, group=4, mask=None, other=4):
    """The bytes of an access list. `named` is the rights of one more user."""
    nobody = 0xFFFFFFFF
    entries = [(1, user, nobody)]
    entries += [(2, named, 4321)] if named is not None else []
    entries += [(4, group, nobody)]
    entries += [(0x10, mask, nobody)] if mask is not None else []
    entries += [(0x20, other, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


LISTS = {"minimal": access_list(7, group=5, other=5),
         "with a mask": access_list(7, 7, 5, 5, 5),
         "that takes rights": access_list(6, 0, 0, 0, 0)}


def make(made, seen, state, name="file", mode=0o644, owner=(USER, GROUP), capable=False):
    """Makes a file as root. Returns a descriptor that keeps it open, for both.

    "found" is a file that was there before, "small" a new one, "dirty" one with much that is not
    written yet.
    """
    path = os.path.join(made if state == "found" else seen, name)
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    os.write(file, b"x" * (LARGE if state == "dirty" else 5000))
    if state == "found":
        os.close(file)
        file = None
    path = os.path.join(made if state == "found" else seen, name)
    os.chown(path, *owner)
    os.chmod(path, mode)
    if capable:
        os.setxattr(path, CAPABILITY, CAPABLE)
    if state == "dirty":
        # The set bits stay, as this is root.
        os.pwrite(file, b"y" * 9000, 100)
        if capable:
            os.setxattr(path, CAPABILITY, CAPABLE)
    return file if file is not None else os.open(os.path.join(seen, name), os.O_RDWR)


def chown(path, user, group, flags=0):
    """chown(2), also of numbers that Python refuses."""
    if LIBC.fchownat(-100, os.fsencode(path), ctypes.c_uint(user & 0xFFFFFFFF),
                     ctypes.c_uint(group & 0xFFFFFFFF), flags):
        raise OSError(ctypes.get_errno(), "chown")


def allocate(file, mode, at, length):
    if error := fallocate(file, mode, at, length):
        raise OSError(error, "fallocate")


def copy_range(path, to):
    """copy_file_range(2) from another file."""
    source = os.open(path, os.O_RDONLY)
    return os.copy_file_range(source, to, 100, 0, 50)


def store(file):
    """A store through a shared map."""
    with mmap.mmap(file, 4096) as memory:
        memory[7:8] = b"m"
        memory.flush()


def open_and(path, flags, call=None, *arguments):
    file = os.open(path, flags)
    try:
        return call(file, *arguments) if call else 0
    finally:
        os.close(file)
