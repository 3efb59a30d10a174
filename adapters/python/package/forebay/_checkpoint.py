"""Checkpoints: many files that are written in parallel and replace the previous ones as a whole.

    DIRECTORY/checkpoint-7/NAME ...       durable first
    DIRECTORY/checkpoint.json             names checkpoint-7, published last
    DIRECTORY/checkpoint-6/NAME ...       removed after that
"""

import concurrent.futures
import contextlib
import fcntl
import json
import os
import re

from ._engine import Committing, Engine

_MANIFEST = "checkpoint.json"
_FORMAT = "forebay checkpoint 1"
_DIRECTORY = re.compile(r"checkpoint-(\d+)")


class Checkpoint:
    """A complete checkpoint. `files` has the size of each file by name."""

    def __init__(self, directory, number, files):
        self.directory = os.path.join(directory, f"checkpoint-{number}")
        self.number = number
        self.files = files

    def path(self, name):
        """Returns the path of a file, for `Engine.open` and all others that read it."""
        if name not in self.files:
            raise KeyError(name)
        return os.path.join(self.directory, name)

    def __repr__(self):
        return f"<forebay.Checkpoint {self.directory!r} files={len(self.files)}>"


def latest(directory):
    """Returns the last complete `Checkpoint` of a directory, or `None` if there is none.

    Raises `ValueError` if the directory has files of something else, or a file is missing or has
    another size.
    """
    directory = os.fsdecode(directory)
    found = _manifest(directory)
    while found is not None:
        try:
            for name, size in found.files.items():
                if os.stat(found.path(name)).st_size != size:
                    raise ValueError(f"{found.path(name)}: not the {size} bytes of the checkpoint")
            return found
        except FileNotFoundError as error:
            before, found = found, _manifest(directory)
            if found is not None and found.number == before.number:
                raise ValueError(f"{error.filename}: missing from the checkpoint") from error
            # Meanwhile a newer checkpoint has replaced it.
    return None


def _manifest(directory):
    path = os.path.join(directory, _MANIFEST)
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
        if manifest["format"] == _FORMAT:
            return Checkpoint(directory, manifest["number"], manifest["files"])
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError):
        pass
    raise ValueError(f"{path}: not a manifest of this format; choose another directory")


def checkpoint(directory, engine=None):
    """Begins a checkpoint that replaces the latest one of a directory. At its end it is durable.

    A failure at any time, also of the machine, leaves the previous checkpoint whole or has the new
    one whole. Files go past the cache of the engine, with 32 MiB of memory for all together.
    Without an `engine`, a small one is started.

    >>> with checkpoint("model") as new:
    ...     new.write("step.txt", b"7")
    ...     new.write_all({"a.bin": b"aaa", "b.bin": lambda file: file.write(b"bb")})
    >>> sorted(latest("model").files.items())
    [('a.bin', 3), ('b.bin', 2), ('step.txt', 1)]
    >>> with open(latest("model").path("step.txt")) as file:
    ...     file.read()
    '7'
    """
    return NewCheckpoint(os.fsdecode(directory), engine)


class NewCheckpoint(Committing):
    """A checkpoint that is being written. Threads may share it."""

    def __init__(self, directory, engine):
        self._directory = directory
        self._own = Engine(cache_bytes="8m") if engine is None else None
        self._batch = (engine or self._own).batch(ordered=True)
        self._files = {}
        self._lock = None
        try:
            self._begin()
        except BaseException:
            self.discard()
            raise

    def _begin(self):
        self._batch.create_dir(self._directory)
        self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = "another checkpoint is being written there"
            raise BlockingIOError(error.errno, text, self._directory) from None
        numbers = [0]
        last = _manifest(self._directory)
        if last is not None:
            numbers.append(last.number)
        entries = os.listdir(self._directory)
        self._old = [os.path.join(self._directory, name) for name in entries
                     if _DIRECTORY.fullmatch(name)]
        numbers.extend(int(_DIRECTORY.fullmatch(os.path.basename(old))[1]) for old in self._old)
        self._new = Checkpoint(self._directory, max(numbers) + 1, {})
        self._batch.create_dir(self._new.directory)

    def create(self, name):
        """Creates a file, which must be closed before the end: a `forebay.BatchFile`."""
        parts = name.split("/")
        if name in self._files or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"invalid or repeated name of a file: {name!r}")
        path = os.path.join(self._new.directory, name)
        if len(parts) > 1:
            self._batch.create_dir(os.path.dirname(path))
        file = self._batch.create(path)
        self._files[name] = file
        return file

    def write(self, name, content):
        """Writes a file: a buffer, or a function that is called with the file object."""
        with self.create(name) as file:
            if callable(content):
                content(file)
            else:
                file.write(content)

    def write_all(self, contents, threads=4):
        """Writes files in parallel: a mapping from names to what `write` takes."""
        pool = concurrent.futures.ThreadPoolExecutor(threads)
        try:
            for write in [pool.submit(self.write, *item) for item in contents.items()]:
                write.result()
        finally:
            # After an exception or an interrupt, the files that are left are not begun.
            pool.shutdown(cancel_futures=True)

    def commit(self):
        """Publishes the files, then the manifest, and removes the files of the previous one."""
        sizes = {name: file.tell() for name, file in self._files.items()}
        manifest = {"format": _FORMAT, "number": self._new.number, "files": sizes}
        directories = []
        try:
            text = json.dumps(manifest, indent=1).encode()
            self._batch.write(os.path.join(self._directory, _MANIFEST), text)
            for old in self._old:
                for directory, _, names in os.walk(old, topdown=False):
                    directories.append(directory)
                    for name in names:
                        self._batch.remove(os.path.join(directory, name))
            self._batch.commit()
        finally:
            self.discard()
        for directory in directories:
            # It stays if somebody else has put a file there.
            with contextlib.suppress(OSError):
                os.rmdir(directory)

    def discard(self):
        """Publishes nothing and removes what was written. After the end it does nothing."""
        self._batch.discard()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._own is not None:
            self._own.shutdown()
