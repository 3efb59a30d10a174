"""Processes of other users, with groups and capabilities of their own."""

import ctypes
import os
import pickle
import struct
import traceback

from ..edges import LIBC

USER, GROUP, MEMBER, FOREIGN, OTHER = 1500, 1500, 1600, 1700, 1501
# Numbers of a user namespace: its root is USER, and the others are from here on.
MAPPED = 100_000

CHOWN, FOWNER, FSETID = 0, 3, 4
NEW_USER_NAMESPACE = 0x10000000
KEEP_CAPABILITIES = 8


class Identity:
    """A caller. Its capabilities are `capabilities`, or all of root but those of `without`.

    `namespace` is a user namespace of its own: "mapped" with numbers, where it is root, or "empty".
    """

    def __init__(self, name, user=USER, group=GROUP, groups=(MEMBER,), capabilities=(),
                 without=(), namespace=None):
        self.name = name
        self.user, self.group, self.groups = user, group, list(groups)
        self.capabilities, self.without = capabilities, without
        self.namespace = namespace

    def become(self):
        os.setgroups(self.groups)
        if self.capabilities:
            LIBC.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
        os.setresgid(self.group, self.group, self.group)
        os.setresuid(self.user, self.user, self.user)
        if self.capabilities or self.without:
            set_capabilities(sum(1 << number for number in self.capabilities), self.without)
        os.umask(0o22)


CALLERS = [
    Identity("a user"),
    Identity("a user of 64 groups", groups=[*range(2001, 2064), MEMBER]),
    Identity("another user", user=OTHER, group=OTHER, groups=[]),
    Identity("a user with CAP_FSETID", capabilities=[FSETID]),
    Identity("a user with CAP_FOWNER and CAP_CHOWN", capabilities=[FOWNER, CHOWN]),
    Identity("root", user=0, group=0, groups=[0]),
    Identity("root without CAP_FSETID", user=0, group=0, groups=[0], without=[FSETID]),
    Identity("root of a user namespace", namespace="mapped"),
    Identity("a user of an empty namespace", namespace="empty"),
]


def set_capabilities(bits, without=()):
    """Sets the capabilities of this process; with `without`, takes these from what it has."""
    header = struct.pack("Ii", 0x20080522, 0)
    data = ctypes.create_string_buffer(24)
    if without:
        assert not LIBC.capget(header, data)
        low, _, _, high, _, _ = struct.unpack("6I", data.raw)
        bits = (high << 32 | low) & ~sum(1 << number for number in without)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    if LIBC.capset(header, struct.pack("6I", low, low, 0, high, high, 0)):
        raise OSError(ctypes.get_errno(), "capset")


def run_as(identity, function, *arguments):
    """Calls a function in a process with this identity, and returns its result."""
    result, theirs = os.pipe()
    begin, ours = os.pipe()
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            identity.become()
            if identity.namespace:
                if LIBC.unshare(NEW_USER_NAMESPACE):
                    raise OSError(ctypes.get_errno(), "unshare")
                os.write(told, b"x")
                os.read(begin, 1)
            found = function(*arguments)
            code = 0
        except BaseException:
            found = traceback.format_exc()
        with open(theirs, "wb") as file:
            pickle.dump((code, found), file)
        os._exit(0)
    os.close(theirs)
    os.close(told)
    if identity.namespace and os.read(ready, 1):
        if identity.namespace == "mapped":
            for name, first in [("uid_map", identity.user), ("gid_map", identity.group)]:
                with open(f"/proc/{child}/{name}", "w") as file:
                    file.write(f"0 {first} 1\n1 {MAPPED} 65000\n")
        os.write(ours, b"x")
    os.close(ours)
    with open(result, "rb") as file:
        code, found = pickle.load(file)
    os.waitpid(child, 0)
    os.close(begin)
    os.close(ready)
    if code:
        raise RuntimeError(found)
    return found
