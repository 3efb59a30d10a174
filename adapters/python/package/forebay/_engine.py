"""The engine and its files, as context managers and file objects over the native module."""

import atexit
import io
import os
import sys
import warnings
import weakref

from . import _forebay
from ._asynchronous import AsyncEngine, AsyncFile, abandon

_MODES = {"r", "r+", "w", "w+", "x", "x+", "a", "a+"}
_engines = weakref.WeakSet()
os.register_at_fork(after_in_child=_forebay.forked)


@atexit.register
def _end():
    """Writes out what unclosed files hold, while threads of the engines still run."""
    abandon()
    for engine in list(_engines):
        try:
            engine.shutdown()
        except _forebay.ForkedError:
            pass
        except OSError:
            sys.excepthook(*sys.exc_info())


class Engine(_forebay.Engine):
    """Memory for cached data, with the threads that write it out. A process needs one.

    Options are those of the library, by name: `cache_bytes` (a number, or text such as "64m"),
    `dirty_age` ("500ms"), `contexts`, `uncached` and others. An invalid one raises `ValueError`.

    >>> with Engine(cache_bytes="16m", dirty_age="500ms") as engine:
    ...     with engine.open("numbers", "w+b") as file:
    ...         written = file.write(b"12345")
    ...         size = file.seek(0, 2)
    ...     engine.stats()["accepted_bytes"]
    5
    """

    def __init__(self, **options):
        _engines.add(self)

    def open(self, path, mode="rb", *, permissions=0o666, uncached=None, temporary=False,
             assume_exclusive=False):
        """Opens a file in a mode of the built-in `open`, always binary, and returns a `File`.

        `uncached`: pages leave memory once they are written or read. `temporary`: the new file
        (mode "x") is renamed later, so a sync does not cover its name. `assume_exclusive`: promises
        that no other program uses the file, where the file system has no leases.
        """
        opening = _opening(path, mode, permissions, uncached, temporary, assume_exclusive)
        return File(self.open_handle(opening), path, opening["mode"])

    def batch(self, *, ordered=False):
        """Begins a `Batch` of new files that get their names together.

        With `ordered`, the last created file gets its name only once all others are durable, and
        files are removed only after it.
        """
        return Batch(self.batch_handle(ordered))

    def sync_many(self, files):
        """Makes files durable together, with fewer flushes than a sync of each."""
        self.sync_handles([file._handle for file in files])

    def copy(self, source, target):
        """Copies the content of one open `File` to another. Returns the number of bytes."""
        return self.copy_handle(source._handle, target._handle)

    def asynchronous(self):
        """Returns the calls that wait, as coroutines."""
        return AsyncEngine(self)

    def shutdown(self, timeout=60):
        """Writes everything out and stops the engine. Its files then raise `ShutdownError`.

        Raises `TimeoutError` if the device needs more than `timeout` seconds. A coroutine's write
        that no loop polls holds it up, too: let tasks end before.
        """
        self.stop(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.shutdown()


def _opening(path, mode, permissions=0o666, uncached=None, temporary=False,
             assume_exclusive=False):
    kind = mode.replace("b", "", 1)
    if kind not in _MODES:
        raise ValueError(f"invalid mode {mode!r}; files are binary: 'rb', 'r+b', 'wb', 'xb', 'ab'")
    return {
        "path": os.fsencode(path), "mode": kind, "permissions": permissions, "uncached": uncached,
        "temporary": temporary, "assume_exclusive": assume_exclusive,
    }


class _Raw(io.RawIOBase):
    """A file object over a native handle."""

    def _close(self):
        if not self.closed:
            try:
                self._handle.close()
            finally:
                super().close()


class File(_Raw):
    """An open file of an engine: a raw binary file object, with calls at an offset beside.

    It needs no `io.BufferedWriter`: a small write is a copy into the memory of the engine, and a
    write accepts all of its data or raises. For `readline`, wrap it in `io.BufferedReader`.

    `flush` does nothing; `sync_data` makes data durable. There is no `fileno`: a read or write of a
    descriptor would bypass the memory of the engine. Threads may share a file; those that use its
    position take turns.

    >>> with Engine() as engine, engine.open("page", "w+b") as file:
    ...     file.write_at(4096, b"second page")
    ...     buffer = bytearray(6)
    ...     file.read_at(4096, buffer), bytes(buffer)
    (6, b'second')
    """

    def __init__(self, handle, name, mode):
        self._handle = handle
        self.name = name
        self.mode = mode[0] + "b" + mode[1:]
        if mode[0] == "a":
            self.seek(0, os.SEEK_END)

    def __repr__(self):
        state = " closed" if self.closed else ""
        return f"<forebay.File name={self.name!r} mode={self.mode!r}{state}>"

    def readable(self):
        self._check()
        return self.mode in ("rb", "rb+", "wb+", "xb+", "ab+")

    def writable(self):
        self._check()
        return self.mode != "rb"

    def seekable(self):
        self._check()
        return True

    def _check(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def readinto(self, buffer):
        """Reads at the position into a buffer. Returns the number of bytes; 0 at the end."""
        return self._handle.readinto(buffer)

    def readall(self):
        """Reads up to the end of the file."""
        data = bytearray()
        while more := self.read(max(self._handle.len() - self.tell(), 0) + 1):
            data += more
        return bytes(data)

    def write(self, data):
        """Writes all of a buffer at the position. After an error the position is as before."""
        return self._handle.write(data)

    def seek(self, offset, whence=os.SEEK_SET):
        """Moves the position, and returns it."""
        return self._handle.seek(offset, whence)

    def tell(self):
        """Returns the position."""
        return self._handle.tell()

    def truncate(self, size=None):
        """Sets the size of the file, by default to the position. Returns it."""
        size = self.tell() if size is None else size
        self._handle.set_len(size)
        return size

    def size(self):
        """Returns the size, with accepted data that is not written yet."""
        return self._handle.len()

    def read_at(self, offset, buffer):
        """Reads at an offset into a buffer. Returns the number of bytes; fewer only at the end."""
        return self._handle.read_at(offset, buffer)

    def write_at(self, offset, data):
        """Writes all of a buffer at an offset."""
        self._handle.write_at(offset, data)

    def append(self, data):
        """Writes all of a buffer at the end of the file, in one piece. Returns its offset."""
        return self._handle.append(data)

    def sync_data(self):
        """Makes all accepted data durable, as `os.fdatasync`."""
        self._handle.sync_data()

    def sync_all(self):
        """Makes all accepted data and all metadata durable, as `os.fsync`."""
        self._handle.sync_all()

    def write_out(self):
        """Writes all accepted data to the file system, without a flush."""
        self._handle.write_out()

    def asynchronous(self):
        """Returns the calls that wait, as coroutines."""
        return AsyncFile(self)

    def describe(self):
        """Returns how the file is accessed, such as 'direct' or 'buffered: ' and a reason."""
        return self._handle.describe()

    def close(self):
        """Writes the file out, closes it, and raises the last errors. It is not a sync."""
        self._close()

    def __del__(self):
        # The handle starts its writing when it is dropped; `Engine.late_errors` has its errors.
        if not self.closed:
            warnings.warn(f"unclosed file {self!r}", ResourceWarning, source=self)


class Committing:
    """A context manager whose block ends with a commit, or by an exception without one."""

    def __enter__(self):
        return self

    def __exit__(self, kind, *exception):
        if kind is None:
            self.commit()
        else:
            self.discard()


class Batch(Committing):
    """New files that become durable and get their names together: `with engine.batch() as batch`.

    The end of the block commits. An exception publishes nothing. Threads may share a batch.

    >>> with Engine() as engine, engine.batch() as batch:
    ...     batch.write("a", b"whole")                # one small file
    ...     with batch.create("b") as b:              # a large one, piece by piece
    ...         written = b.write(b"first, ") + b.write(b"second")
    ...     os.path.exists("a")
    False
    >>> with open("b") as b:
    ...     b.read()
    'first, second'
    """

    def __init__(self, handle):
        self._handle = handle

    def create(self, path, *, new=False):
        """Creates a `BatchFile` that replaces the one at `path`. With `new`, none may be there."""
        return BatchFile(self._handle.create(os.fsencode(path), new), path)

    def write(self, path, data):
        """Creates a file with this content."""
        with self.create(path) as file:
            file.write(data)

    def rename(self, source, target):
        """Renames an existing file at the commit."""
        self._handle.rename(os.fsencode(source), os.fsencode(target))

    def remove(self, path):
        """Removes an existing file at the commit."""
        self._handle.remove(os.fsencode(path))

    def create_dir(self, path):
        """Makes a directory and its missing parents now; the commit makes them durable."""
        self._handle.create_dir(os.fsencode(path))

    def commit(self):
        """Makes all files durable and gives them their names. `CommitError` lists the targets."""
        self._handle.commit()

    def discard(self):
        """Publishes nothing and removes the files."""
        self._handle.discard()


class BatchFile(_Raw):
    """New file of a `Batch`, written in order. It must be closed before the commit.

    A file that is not closed, or whose block ends with an exception, prevents the commit.
    """

    mode = "xb"

    def __init__(self, handle, name):
        self._handle = handle
        self._position = 0
        self.name = name

    def writable(self):
        return True

    def write(self, data):
        """Writes all of a buffer at the end."""
        written = self._handle.write(data)
        self._position += written
        return written

    def tell(self):
        return self._position

    def set_mode(self, mode):
        """Sets the permission bits of the file."""
        self._handle.set_mode(mode)

    def close(self):
        """Declares the file complete."""
        self._close()

    def discard(self):
        """Drops the file. Its batch can then not be committed."""
        self._handle.discard()
        super().close()

    def __exit__(self, kind, *exception):
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self):
        # Not closed: half a file must not be published.
        pass
