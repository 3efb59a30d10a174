"""What a change of the content removes: set bits and capabilities."""

import itertools
import os
import shutil
import subprocess

from . import Case, test
from .files import (CAPABILITY, CAPABLE, GROUPS, STATES, allocate, copy_range, make, open_and, store)
from .identity import CALLERS, OTHER, USER

MODES = [0o6777, 0o4777, 0o2777, 0o4666, 0o2766, 0o6766, 0o2676, 0o777]

# By a descriptor that the caller opens, or by one that root opened before.
BY_DESCRIPTOR = {
    "write": lambda file: os.pwrite(file, b"w" * 10, 3),
    "a write of nothing": lambda file: os.pwrite(file, b"", 3),
    "a write of two pieces": lambda file: os.pwritev(file, [b"a", b"b"], 0),
    "ftruncate": lambda file: os.ftruncate(file, 10),
    "ftruncate to the same size": lambda file: os.ftruncate(file, os.fstat(file).st_size),
    "fallocate": lambda file: allocate(file, 0, 0, 8192),
    "fallocate of kept size": lambda file: allocate(file, 1, 0, 4096),
    "a hole": lambda file: allocate(file, 3, 0, 4096),
    "zeroes": lambda file: allocate(file, 0x10, 0, 4096),
    "a copy": lambda file: copy_range("source", file),
    "a store": store,
}
BY_NAME = {
    "truncate": lambda: os.truncate("file", 10),
    "truncate to the same size": lambda: os.truncate("file", os.stat("file").st_size),
    "an open that cuts": lambda: open_and("file", os.O_WRONLY | os.O_TRUNC),
    "an open for both that cuts": lambda: open_and("file", os.O_RDWR | os.O_TRUNC),
    "an open to read that cuts": lambda: open_and("file", os.O_RDONLY | os.O_TRUNC),
    "a create that cuts": lambda: open_and("file", os.O_CREAT | os.O_WRONLY | os.O_TRUNC),
    "an append": lambda: open_and("file", os.O_WRONLY | os.O_APPEND, os.write, b"end"),
    "a synchronous write": lambda: open_and("file", os.O_WRONLY | os.O_SYNC, os.write, b"s"),
    "a direct write": lambda: open_and("file", os.O_WRONLY, os.write, b"d" * 4096),
}
for call_name, by_descriptor in BY_DESCRIPTOR.items():
    BY_NAME[f"{call_name} by an own descriptor"] = \
        lambda call=by_descriptor: open_and("file", os.O_RDWR, call)


def cases(calls, is_capable):
    """Each call with each mode, and with one of the other properties in turn."""
    others = itertools.cycle(itertools.product(STATES, GROUPS, [USER, OTHER]))
    for caller, mode, (name, call) in itertools.product(CALLERS, MODES, calls.items()):
        state, group, owner = next(others)
        if is_capable and name.startswith("a store"):
            # The write-out of the source removes them, unlike the store itself.
            continue

        def prepare(made, seen, state=state, mode=mode, owner=owner, group=group):
            shutil.copy("/bin/true", os.path.join(made, "source"))
            return make(made, seen, state, mode=mode, owner=(owner, GROUPS[group]),
                        capable=is_capable)

        def listed(file, call=call, name=name):
            yield name, (lambda: call(file)) if name in BY_DESCRIPTOR else call
            yield "mode", lambda: f"{os.stat('file').st_mode:o}"
        yield Case(f"{name}, {mode:o}, {state}, group {group}, user {owner}", caller, prepare,
                   listed)


@test("bits after calls by a descriptor that root has opened")
def by_descriptor():
    yield from cases(BY_DESCRIPTOR, False)


@test("bits after calls by name")
def by_name():
    yield from cases(BY_NAME, False)


@test("capabilities after calls by a descriptor that root has opened")
def capabilities_by_descriptor():
    yield from cases(BY_DESCRIPTOR, True)


@test("capabilities after calls by name")
def capabilities_by_name():
    yield from cases(BY_NAME, True)


@test("bits that are set while a file is open for another user")
def set_meanwhile():
    """The bits are set in the source, which a mount need not hear of."""
    for caller, state, mode in itertools.product(CALLERS, STATES, [0o6777, 0o2766]):
        def prepare(made, seen, state=state, mode=mode):
            file = make(made, seen, state, mode=0o777, owner=(OTHER, GROUPS["foreign"]))
            os.stat(os.path.join(seen, "file"))
            os.chmod(os.path.join(made, "file"), mode)
            return file

        def calls(file):
            yield "write", lambda: os.pwrite(file, b"w", 0)
        yield Case(f"{mode:o}, {state}", caller, prepare, calls)


@test("capabilities that are set while a file is open for another user")
def capable_meanwhile():
    for caller, state, again in itertools.product(CALLERS, STATES, [False, True]):
        def prepare(made, seen, state=state, again=again):
            file = make(made, seen, state, mode=0o777, owner=(OTHER, GROUPS["foreign"]))
            if again:
                os.close(file)
                file = os.open(os.path.join(seen, "file"), os.O_RDWR)
            os.setxattr(os.path.join(made, "file"), CAPABILITY, CAPABLE)
            return file

        def calls(file):
            yield "write", lambda: os.pwrite(file, b"w", 0)
            yield "capabilities", lambda: os.getxattr("file", CAPABILITY)
        yield Case(f"{state}, opened again {again}", caller, prepare, calls)


@test("a program runs without the bits that a write has removed")
def executed():
    # The others keep the bits, and a mount may be `nosuid`.
    losing = [caller for caller in CALLERS if caller.user and not caller.capabilities]
    for caller, state in itertools.product(losing, STATES):
        def prepare(made, seen, state=state):
            file = make(made, seen, state, mode=0o6777, owner=(OTHER, GROUPS["foreign"]))
            os.ftruncate(file, 0)
            with open("/usr/bin/id", "rb") as program:
                os.pwrite(file, program.read(), 0)
            os.chmod(os.path.join(seen, "file"), 0o6777)
            # The kernel of a mount remembers the mode.
            os.stat(os.path.join(seen, "file"))
            os.close(file)
            return None

        def calls(_):
            def run():
                done = subprocess.run(["./file"], stdout=subprocess.PIPE, text=True)
                return done.returncode, done.stdout
            yield "write", lambda: open_and("file", os.O_WRONLY | os.O_APPEND, os.write, b"\0")
            yield "run", run
        yield Case(state, caller, prepare, calls)
