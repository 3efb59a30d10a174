"""The tests of `rights`: each makes the same calls as the same caller on plain files and at the
judged place, and compares what they return and what is there afterwards.
"""

import errno
import os
import random
import shutil

from .identity import run_as

TESTS = {}
# Cases of a test that run at least, if it has so many.
LEAST = 50


def test(name):
    """Registers a function that yields cases."""
    def add(function):
        TESTS[name] = function
        return function
    return add


class Case:
    """Calls of one caller in one directory.

    `prepare` gets the directory where files are made and that where they are seen, both as root.
    What it returns, `calls` gets after the directory: such as descriptors. `calls` yields pairs of
    a name and a function.
    """

    def __init__(self, name, caller, prepare, calls):
        self.name, self.caller = name, caller
        self.prepare, self.calls = prepare, calls

    def run(self, place):
        """Returns all that can be seen."""
        made, seen = place.new()
        kept = self.prepare(made, seen)
        try:
            returned = run_as(self.caller, outcomes, self.calls, seen, kept)
            found = {"calls": returned, "seen": tree(seen)}
            write_out(made)
            found["in the source"] = tree(made)
        finally:
            for file in kept if isinstance(kept, tuple) else (kept,):
                if isinstance(file, int):
                    os.close(file)
            # Where the kernel hears of it: it forgets the names.
            shutil.rmtree(seen, ignore_errors=True)
        return found


class Place:
    """A directory for cases: where they see their files, and the source of that."""

    def __init__(self, source, seen):
        self.source, self.seen, self.last = source, seen, 0

    def new(self):
        self.last += 1
        made, seen = (os.path.join(top, str(self.last)) for top in (self.source, self.seen))
        os.mkdir(made)
        os.chmod(made, 0o755)
        return made, seen


def outcomes(calls, directory, kept):
    os.chdir(directory)
    found = []
    try:
        for name, call in calls(kept):
            found.append((name, outcome(call)))
    except OSError as error:
        found.append(("between the calls", errno.errorcode[error.errno]))
    return found


def outcome(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


def tree(directory):
    """All that a directory contains: modes, owners, sizes, attributes."""
    found = {"": state(directory)}
    for name in sorted(os.listdir(directory)):
        found[name] = state(os.path.join(directory, name))
    return found


def state(path):
    status = os.lstat(path)
    names = sorted(os.listxattr(path, follow_symlinks=False))
    attributes = {name: os.getxattr(path, name, follow_symlinks=False).hex() for name in names
                  if not name.startswith("user.forebay")}
    size = status.st_size if status.st_mode & 0o170000 == 0o100000 else None
    return (f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {status.st_nlink}", size,
            attributes)


def write_out(directory):
    """An open of the source has a mount write out what it holds."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isfile(path) and not os.path.islink(path):
            os.close(os.open(path, os.O_RDONLY))


def compare(name, plain, judged, share):
    """Runs a share of the cases of a test at both places. Returns the differences."""
    cases = list(TESTS[name]())
    chance, wrong, ran = random.Random(name), [], 0
    for case in cases:
        if chance.random() >= max(share, LEAST / len(cases)):
            continue
        ran += 1
        want, found = case.run(plain), case.run(judged)
        if want != found:
            wrong.append(f"{case.name}, {case.caller.name}: {difference(want, found)}")
    return f"{len(wrong)} of {ran} differ; " + "; ".join(wrong[:4]) if wrong else ""


def difference(want, found):
    """Names the first value that differs."""
    if isinstance(want, dict) and isinstance(found, dict):
        for key in {**want, **found}:
            if want.get(key) != found.get(key):
                return f"{key}: {difference(want.get(key), found.get(key))}"
    if isinstance(want, (list, tuple)) and isinstance(found, (list, tuple)):
        for one, other in zip(want, found):
            if one != other:
                return difference(one, other)
    return f"{found}, plain {want}"


from . import content, creation, metadata  # noqa: E402, F401 (they add their tests)
