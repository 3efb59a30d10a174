"""The tests of `edges`: functions from a new directory to what is wrong, or an empty text."""

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
TESTS = {}


def new(directory):
    os.mkdir(directory)
    return directory


def test(name):
    def add(function):
        TESTS[name] = function
        return function
    return add


def put(path, data=b"", flags=0, mode=0o644):
    file = os.open(path, os.O_CREAT | os.O_RDWR | flags, mode)
    if data:
        os.write(file, data)
    return file


def read(path):
    with open(path, "rb") as file:
        return file.read()


def fallocate(file, mode, at, length):
    if LIBC.fallocate(file, mode, ctypes.c_long(at), ctypes.c_long(length)):
        return ctypes.get_errno()
    return 0


def same(what, found, want):
    return "" if found == want else f"{what} is {str(found)[:100]}, not {str(want)[:100]}"


from . import data, names, times  # noqa: E402, F401 (they add their tests)
