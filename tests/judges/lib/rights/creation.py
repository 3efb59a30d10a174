"""New names: owner, group, mode and access list of what is made; and names that are taken away."""

import itertools
import os
import stat

from . import Case, test
from .files import ACCESS, DEFAULT, GROUPS, STATES, access_list, make, open_and
from .identity import CALLERS, FOREIGN, GROUP, OTHER, USER

DIRECTORIES = [0o777, 0o2777, 0o1777, 0o3777]
MODES = [0o6777, 0o2755, 0o2745, 0o4711, 0o666, 0o600, 0o200, 0]
MASKS = [0, 0o22, 0o77, 0o777]


def parent(mode, group, has_list):
    def prepare(made, _):
        path = os.path.join(made, "directory")
        os.mkdir(path)
        os.chown(path, OTHER, GROUPS[group])
        os.chmod(path, mode)
        if has_list:
            os.setxattr(path, DEFAULT, access_list(7, 6, 7, 7, 1))
    return prepare


MAKE = {
    "open": lambda mode: os.close(os.open("directory/new", os.O_CREAT | os.O_WRONLY, mode)),
    "mkdir": lambda mode: os.mkdir("directory/new", mode),
    "fifo": lambda mode: os.mkfifo("directory/new", mode),
    "mknod": lambda mode: os.mknod("directory/new", stat.S_IFREG | mode),
    "device": lambda mode: os.mknod("directory/new", stat.S_IFCHR | mode, os.makedev(1, 3)),
    "whiteout": lambda mode: os.mknod("directory/new", stat.S_IFCHR | mode, 0),
    "symlink": lambda mode: os.symlink("target", "directory/new"),
}


def made(calls):
    """New objects of each caller, with one directory in turn."""
    others = itertools.cycle(itertools.product(DIRECTORIES, GROUPS, [False, True], MASKS))
    for caller, mode, (name, call) in itertools.product(CALLERS, MODES, calls.items()):
        for _ in range(5):
            above, group, has_list, mask = next(others)

            def listed(_, mode=mode, mask=mask, call=call):
                os.umask(mask)
                yield "make", lambda: call(mode)
                yield "look", look
            yield Case(f"{name} {mode:o}, mask {mask:o}, in {above:o} of group {group}, "
                       f"default list {has_list}", caller, parent(above, group, has_list), listed)


def look():
    status = os.lstat("directory/new")
    names = sorted(os.listxattr("directory/new", follow_symlinks=False))
    return (f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {status.st_rdev}",
            [(name, os.getxattr("directory/new", name, follow_symlinks=False).hex())
             for name in names if "posix_acl" in name])


@test("new objects")
def objects():
    yield from made(MAKE)


@test("a new file is used by the descriptor that made it, whatever its mode")
def used():
    for caller, mode, flags in itertools.product(
            CALLERS, [0, 0o200, 0o400, 0o444, 0o6755], [os.O_RDWR, os.O_WRONLY, os.O_RDONLY]):
        def calls(_, mode=mode, flags=flags):
            file = os.open("directory/new", os.O_CREAT | os.O_EXCL | flags, mode)
            yield "write", lambda: os.pwrite(file, b"w" * 200_000, 0)
            yield "read", lambda: len(os.pread(file, 1000, 100))
            yield "cut", lambda: os.ftruncate(file, 150_000)
            yield "chmod", lambda: os.fchmod(file, 0o2711)
            yield "write again", lambda: os.pwrite(file, b"w", 0)
            yield "sync", lambda: os.fsync(file)
            yield "open again", lambda: open_and("directory/new", os.O_RDWR)
            yield "truncate", lambda: os.truncate("directory/new", 9)
            yield "look", look
        yield Case(f"{mode:o}, {flags}", caller, parent(0o2777, "foreign", False), calls)


@test("a descriptor keeps its rights, and its owner those that are looked at anew")
def kept():
    def lose_groups():
        os.setgroups([])

    changes = {"chmod 0": lambda: os.chmod("file", 0), "no groups": lose_groups,
               "a list": lambda: os.setxattr("file", ACCESS, access_list(0, 0, 0, 0, 0)),
               "unlink": lambda: os.unlink("file")}
    for caller, (name, change), state in itertools.product(CALLERS, changes.items(), STATES):
        def prepare(made_at, seen, state=state):
            os.chmod(made_at, 0o777)
            return make(made_at, seen, state, mode=0o2664, owner=(USER, GROUPS["member"]))

        def calls(_, change=change):
            file = os.open("file", os.O_RDWR)
            yield "change", change
            yield "write", lambda: os.pwrite(file, b"w" * 5000, 0)
            yield "read", lambda: os.pread(file, 5, 0).hex()
            yield "cut", lambda: os.ftruncate(file, 4000)
            yield "fchmod", lambda: os.fchmod(file, 0o2660)
            yield "fchown", lambda: os.fchown(file, -1, GROUP)
            yield "list", lambda: os.setxattr(file, ACCESS, access_list(6, 6, 4, 6, 0))
            yield "attribute", lambda: os.setxattr(file, "user.one", b"1")
            yield "look", lambda: f"{os.fstat(file).st_mode:o} {os.fstat(file).st_gid}"
        yield Case(f"{name}, {state}", caller, prepare, calls)


@test("names that are taken away, and second names")
def names():
    calls_of = {
        "unlink": lambda: os.unlink("directory/file"),
        "rename": lambda: os.rename("directory/file", "directory/renamed"),
        "rename away": lambda: os.rename("directory/file", "file"),
        "rename over": lambda: os.rename("file", "directory/file"),
        "link": lambda: os.link("directory/file", "directory/second"),
        "create": lambda: open_and("directory/file", os.O_CREAT | os.O_RDWR),
    }
    for caller, above, (name, call) in itertools.product(CALLERS, DIRECTORIES, calls_of.items()):
        for mode, owner in itertools.product([0o666, 0o600, 0o4777], [USER, OTHER, 0]):
            def prepare(made_at, seen, above=above, mode=mode, owner=owner):
                os.chmod(made_at, 0o777)
                parent(above, "foreign", False)(made_at, seen)
                os.close(make(made_at, seen, "found", owner=(USER, GROUP)))
                return make(made_at, seen, "found", "directory/file", mode, (owner, FOREIGN))

            def calls(_, name=name, call=call):
                yield name, call
                yield "names", lambda: sorted(os.listdir("directory"))
            yield Case(f"{name}, {mode:o} of {owner} in {above:o}", caller, prepare, calls)
