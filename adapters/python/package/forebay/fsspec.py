"""Files of an engine for fsspec: `fsspec.open("forebay:///data/a.parquet", "wb")`.

- A new file (modes "wb" and "xb") gets its name, durably, when it is closed. It cannot be sought.
  If its block ends with an exception, nothing is published.
- Within `fs.transaction`, all new files do so together, at the end.
- Files that are changed ("ab", "r+b") are durable when they are closed.
- Everything but the content of files is that of fsspec's `LocalFileSystem`.
"""

import io
import os
import shutil
import sys

from fsspec.compression import compr
from fsspec.core import OpenFile, get_compression
from fsspec.implementations.local import LocalFileSystem
from fsspec.transaction import Transaction

from ._engine import BatchFile, Committing, Engine, File, _opening


class _New(BatchFile):
    """New file, published when it is closed, or by the batch of a transaction."""

    def __init__(self, handle, name, own):
        super().__init__(handle, name)
        self._own = own

    def close(self):
        if self.closed:
            return
        if _ends_failed_block(sys._getframe(1)):
            self.discard()
            return
        super().close()
        if self._own is not None:
            self._own.commit()

    def discard(self):
        super().discard()
        if self._own is not None:
            self._own.discard()

    def commit(self):
        """Does nothing: the transaction commits its batch."""


def _ends_failed_block(frame):
    """Returns whether `with fsspec.open(...)` calls. It closes its file after exceptions, too."""
    back = frame.f_back
    return (frame.f_code is OpenFile.close.__code__ and back.f_code is OpenFile.__exit__.__code__
            and back.f_locals["args"][0] is not None)


class _Compressed(Committing, io.BufferedIOBase):
    """What is written goes, compressed, to a new file."""

    def __init__(self, file, compression):
        self._file = file
        self._stream = compr[compression](file, mode="w")

    def writable(self):
        return True

    def write(self, data):
        return self._stream.write(data)

    def close(self):
        if not self.closed:
            # It leaves its file open.
            self._stream.close()
            self._file.close()
            super().close()

    commit = close

    def discard(self):
        self._file.discard()
        super().close()

    def __del__(self):
        # Not closed: half a file must not be published.
        pass


class _Text(Committing, io.TextIOWrapper):
    """Text, which goes to a new file."""

    commit = io.TextIOWrapper.close

    def discard(self):
        self.buffer.discard()


class _Changed(File):
    """File that is durable once closed."""

    def close(self):
        if not self.closed:
            try:
                self.sync_data()
            finally:
                super().close()


class _Transaction(Transaction):
    """New files that are published together."""

    def start(self):
        super().start()
        self.batch = self.fs.engine.batch()

    def complete(self, commit=True):
        batch = self.batch
        try:
            batch.commit() if commit else batch.discard()
        finally:
            super().complete(commit)


class ForebayFileSystem(LocalFileSystem):
    """Local files, read and written by an engine.

    The options of `Engine` are arguments, or `engine` is one that the program has already.

    >>> fs = ForebayFileSystem(cache_bytes="16m")
    >>> with fs.transaction:
    ...     fs.pipe_file("one", b"1")
    ...     fs.pipe_file("two", b"2")
    ...     fs.exists("one")
    False
    >>> fs.cat_file("one") + fs.cat_file("two")
    b'12'
    """

    protocol = "forebay"
    transaction_type = _Transaction

    def __init__(self, engine=None, auto_mkdir=False, **options):
        own = {name: value for name, value in options.items() if name not in _OF_FSSPEC}
        super().__init__(auto_mkdir=auto_mkdir, **options)
        self.engine = Engine(**own) if engine is None else engine

    @classmethod
    def _strip_protocol(cls, path):
        path = os.fspath(path) if isinstance(path, os.PathLike) else path
        for start in ("forebay://", "forebay:"):
            if path.startswith(start):
                path = path[len(start):]
                break
        return super()._strip_protocol(path)

    def unstrip_protocol(self, name):
        return f"forebay://{self._strip_protocol(name)}"

    def open(self, path, mode="rb", block_size=None, cache_options=None, compression=None,
             encoding=None, errors=None, newline=None, **others):
        if mode.replace("b", "").replace("t", "") not in ("w", "x"):
            text = {} if "b" in mode else dict(encoding=encoding, errors=errors, newline=newline)
            return super().open(path, mode, block_size, cache_options, compression, **text,
                                **others)
        file = super().open(path, mode[0] + "b", block_size, cache_options, **others)
        compression = get_compression(self._strip_protocol(path), compression)
        if compression is not None:
            file = _Compressed(file, compression)
        return file if "b" in mode else _Text(file, encoding, errors, newline)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, **others):
        path = self._strip_protocol(path)
        if self.auto_mkdir and "r" not in mode:
            self.makedirs(self._parent(path), exist_ok=True)
        if mode == "rb":
            return io.BufferedReader(self.engine.open(path, mode), 1 << 17)
        if mode in ("wb", "xb"):
            own = self.engine.batch() if autocommit else None
            handle = (own or self.transaction.batch)._handle.create(os.fsencode(path), mode == "xb")
            return _New(handle, path, own)
        if not autocommit:
            raise ValueError(f"mode {mode!r} in a transaction: only new files can be in it")
        opening = _opening(path, mode)
        return _Changed(self.engine.open_handle(opening), path, opening["mode"])

    def cp_file(self, path1, path2, **others):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        if self.isdir(path1):
            return self.mkdirs(path2, exist_ok=True)
        with self.open(path1, "rb") as source, self.open(path2, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)


# Arguments that fsspec gives to every file system.
_OF_FSSPEC = {"asynchronous", "loop", "skip_instance_cache", "use_listings_cache", "batch_size",
              "listings_expiry_time", "max_paths"}
