"""Changes of mode, owner, access list, times and attributes."""

import itertools
import os
import struct

from ..edges import LIBC
from . import Case, test
from .files import (ACCESS, CAPABILITY, CAPABLE, DEFAULT, GROUPS, LISTS, STATES, access_list,
                    chown, make)
from .identity import CALLERS, FOREIGN, FOWNER, GROUP, MEMBER, OTHER, USER

KINDS = ["file", "directory", "fifo"]
BEFORE = [0o6755, 0o2755, 0o2745, 0o755, 0o1755]
AFTER = [0o6755, 0o2750, 0o2744, 0o3777, 0o4700, 0o600, 0o0]


def made(made_at, seen, kind, state, mode, owner):
    """Makes an object of a kind. Returns a descriptor of it."""
    if kind == "file":
        return make(made_at, seen, state, mode=mode, owner=owner)
    path = os.path.join(made_at if state == "found" else seen, "file")
    os.mkdir(path) if kind == "directory" else os.mkfifo(path)
    os.chown(path, *owner)
    os.chmod(path, mode)
    return os.open(os.path.join(seen, "file"),
                   os.O_RDONLY if kind == "directory" else os.O_RDWR)


def objects(turns):
    """Objects with every kind, group and owner, in turn."""
    return itertools.islice(
        itertools.cycle(itertools.product(KINDS, GROUPS, [USER, OTHER], STATES)), turns)


def changed(name, before, each, calls):
    """Cases of calls of all callers on objects of all kinds."""
    turns = itertools.cycle(objects(10_000))
    for caller, mode, argument in itertools.product(CALLERS, before, each):
        for _ in range(6):
            kind, group, owner, state = next(turns)

            def prepare(made_at, seen, kind=kind, state=state, mode=mode, owner=owner,
                        group=group):
                return made(made_at, seen, kind, state, mode, (owner, GROUPS[group]))

            def listed(file, argument=argument):
                yield from calls(file, argument)
            yield Case(f"{name} {argument}, {kind} {mode:o}, {state}, group {group}, user {owner}",
                       caller, prepare, listed)


@test("chmod")
def by_chmod():
    def calls(_, mode):
        yield f"chmod {mode:o}", lambda: os.chmod("file", mode)
        yield "mode", lambda: f"{os.stat('file').st_mode:o}"
    return changed("chmod", BEFORE, AFTER, calls)


@test("fchmod of a descriptor that root has opened")
def by_fchmod():
    def calls(file, mode):
        yield f"fchmod {mode:o}", lambda: os.fchmod(file, mode)
        yield "mode", lambda: f"{os.fstat(file).st_mode:o}"
    return changed("fchmod", BEFORE, AFTER, calls)


@test("access lists")
def by_list():
    def calls(file, name):
        yield "set", lambda: os.setxattr("file", ACCESS, LISTS[name])
        yield "mode", lambda: f"{os.stat('file').st_mode:o}"
    return changed("a list", BEFORE, LISTS, calls)


@test("access lists by a descriptor that root has opened")
def by_list_of_descriptor():
    def calls(file, name):
        yield "set", lambda: os.setxattr(file, ACCESS, LISTS[name])
        yield "mode", lambda: f"{os.fstat(file).st_mode:o}"
    return changed("a list", BEFORE, LISTS, calls)


@test("access lists that are removed or invalid, and lists of new files")
def other_lists():
    invalid = {"nothing": b"", "no entries": struct.pack("<I", 2),
               "of another version": struct.pack("<I", 1) + access_list()[4:],
               "cut": access_list()[:-3], "without a mask": access_list(named=7)}

    def calls(file, name):
        if name == "removed":
            yield "set", lambda: os.setxattr(file, ACCESS, LISTS["with a mask"])
            yield "remove", lambda: os.removexattr("file", ACCESS)
            yield "remove again", lambda: os.removexattr("file", ACCESS)
        elif name in invalid:
            yield "set", lambda: os.setxattr("file", ACCESS, invalid[name])
        else:
            yield "set", lambda: os.setxattr("file", DEFAULT, LISTS["with a mask"])
            yield "remove", lambda: os.removexattr("file", DEFAULT)
        yield "mode", lambda: f"{os.stat('file').st_mode:o}"
    return changed("a list", [0o2755, 0o6745], ["removed", "of new files", *invalid], calls)


@test("chmod of a file with an access list")
def chmod_with_list():
    def calls(file, mode):
        yield "set", lambda: os.setxattr(file, ACCESS, LISTS["with a mask"])
        yield f"chmod {mode:o}", lambda: os.chmod("file", mode)
        yield f"fchmod {mode:o}", lambda: os.fchmod(file, mode | 0o20)
    return changed("chmod", [0o2755, 0o644], AFTER, calls)


OWNERS = [(-1, GROUP), (-1, MEMBER), (-1, FOREIGN), (USER, -1), (OTHER, -1), (USER, GROUP),
          (OTHER, FOREIGN)]
NOBODY = (-1, -1)


@test("chown")
def by_chown():
    def calls(_, owner):
        yield f"chown {owner}", lambda: chown("file", *owner)
        yield "mode", lambda: f"{os.stat('file').st_mode:o}"
    return changed("chown", BEFORE, OWNERS, calls)


@test("fchown of a descriptor that root has opened")
def by_fchown():
    def calls(file, owner):
        def call():
            # Python passes -1 on.
            os.fchown(file, *owner)
        yield f"fchown {owner}", call
    return changed("fchown", [0o6755, 0o2745], OWNERS, calls)


def to_nobody(is_own):
    """chown(2) that names neither user nor group, of files that a caller may change or not."""
    def calls(file, _):
        yield "chown", lambda: chown("file", *NOBODY)
        yield "fchown", lambda: os.fchown(file, *NOBODY)
    for case in changed("chown", BEFORE, [NOBODY], calls):
        owner = int(case.name.rpartition(" ")[2])
        caller = case.caller
        if is_own == (caller.user in (0, owner) or FOWNER in caller.capabilities):
            yield case


@test("chown that changes nothing")
def own_to_nobody():
    return to_nobody(True)


@test("chown that changes nothing of a stranger's file")
def others_to_nobody():
    return to_nobody(False)


@test("owners of files with capabilities")
def capable():
    for caller, owner, state in itertools.product(CALLERS, [*OWNERS, NOBODY], STATES):
        def prepare(made_at, seen, state=state):
            return make(made_at, seen, state, mode=0o4755, owner=(USER, GROUP), capable=True)

        def calls(_, owner=owner):
            yield f"chown {owner}", lambda: chown("file", *owner)
        yield Case(f"chown {owner}, {state}", caller, prepare, calls)


@test("bits that are set after a write stay")
def set_after_write():
    for caller, mode, state in itertools.product(CALLERS, [0o4755, 0o2755, 0o6711], STATES):
        def prepare(made_at, seen, state=state):
            return make(made_at, seen, state, mode=0o666, owner=(USER, GROUP))

        def calls(file, mode=mode):
            yield "write", lambda: os.pwrite(file, b"w" * 70_000, 0)
            yield "chmod", lambda: os.chmod("file", mode)
            yield "sync", lambda: os.fsync(file)
        yield Case(f"{mode:o}, {state}", caller, prepare, calls)


@test("times")
def times():
    now, omitted = (1 << 30) - 1, (1 << 30) - 2
    pairs = {"now": (now, now), "one now": (now, omitted), "now and one given": (now, 5),
             "given": (5, 5), "none": (omitted, omitted)}

    def set_times(path, pair):
        times = struct.pack("4l", 1000, pairs[pair][0], 1000, pairs[pair][1])
        if LIBC.utimensat(-100, path, times, 0):
            raise OSError(__import__("ctypes").get_errno(), "utimensat")

    def calls(_, pair):
        yield pair, lambda: set_times(b"file", pair)
    return changed("times", [0o644, 0o666, 0o600, 0o6777], pairs, calls)


@test("attributes")
def attributes():
    def calls(file, name):
        value = CAPABLE if name == CAPABILITY else b"value"
        yield "get", lambda: os.getxattr("file", name).hex()
        yield "set", lambda: os.setxattr("file", name, value)
        yield "set by the descriptor", lambda: os.setxattr(file, name, value)
        yield "get again", lambda: os.getxattr(file, name).hex()
        yield "list", lambda: sorted(n for n in os.listxattr("file") if "forebay" not in n)
        yield "remove", lambda: os.removexattr("file", name)
    names = ["user.one", "trusted.one", CAPABILITY, "security.other", "other.one"]
    return changed("attribute", [0o644, 0o666, 0o600, 0o1777], names, calls)


@test("lists of attributes")
def listed():
    for caller, state in itertools.product(CALLERS, STATES):
        def prepare(made_at, seen, state=state):
            file = make(made_at, seen, state)
            for name in ["user.one", "trusted.two", "security.three"]:
                os.setxattr(os.path.join(made_at, "file"), name, b"value")
            return file

        def calls(file):
            for what in ("file", file):
                yield "list", lambda what=what: sorted(
                    name for name in os.listxattr(what) if "forebay" not in name)
        yield Case(state, caller, prepare, calls)
