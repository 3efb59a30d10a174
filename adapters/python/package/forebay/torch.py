"""Checkpoints of `torch.distributed.checkpoint` that are old or whole.

    import torch.distributed.checkpoint as dcp

    dcp.save(state, storage_writer=forebay.torch.Writer("model"))
    dcp.load(state, checkpoint_id="model")              # the reader of torch

    model/__TOKEN_RANK_0.distcp     each rank's files, durable first; with a new TOKEN
    model/.metadata                 names them, published last, by the coordinator
    model/__OTHER_RANK_0.distcp     files of the save before, removed after that
"""

import contextlib
import dataclasses
import fcntl
import os
import re
import secrets

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from ._engine import Engine

# Files of any writer of this format.
_FILE = re.compile(r"__([0-9a-f]{8}_)?\d+_\d+\.distcp")


class _Files(FileSystem):
    """Files that `FileSystemWriter` makes, in a batch, which has no temporary names."""

    batch = None

    def create_stream(self, path, mode):
        return self.batch.create(os.fspath(path).removesuffix(".tmp"))

    def mkdir(self, path):
        """Does nothing: the batch makes the directory."""

    def rm_file(self, path):
        """Does nothing: the batch replaces the file."""

    def rename(self, path, new_path):
        """Does nothing: the file has its last name."""


class Writer(FileSystemWriter):
    """A `FileSystemWriter` whose save replaces the one before as a whole, durably.

    A failure at any time, also of a rank or a machine, leaves the previous checkpoint whole or has
    the new one whole. All ranks see one directory. Files go past the cache of the engine; without
    an `engine`, each rank starts one of 8 MiB for each save. `options` are those of
    `FileSystemWriter`.
    """

    def __init__(self, path, engine=None, **options):
        super().__init__(path, sync_files=False, **options)
        self.fs = _Files()
        self._engine = engine

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        if not self.use_collectives:
            raise ValueError("use_collectives=False: ranks cannot publish together without them")

    def write_data(self, plan, planner):
        """Writes the files of this rank, and makes them durable under names of their own."""
        prefix = f"__{secrets.token_hex(4)}{plan.storage_data.prefix[1:]}"
        storage = dataclasses.replace(plan.storage_data, prefix=prefix)
        with self._batch() as batch:
            batch.create_dir(self.path)
            return super().write_data(dataclasses.replace(plan, storage_data=storage), planner)

    def finish(self, metadata, results):
        """Publishes the checkpoint, once the files of all ranks are durable."""
        names = {result.storage_data.relative_path for rank in results for result in rank}
        with self._alone(), self._batch(ordered=True) as batch:
            for name in names:
                # Another directory on the machine of the rank, or replaced by another job.
                os.stat(os.path.join(self.path, name))
            super().finish(metadata, results)
            for name in os.listdir(self.path):
                if _FILE.fullmatch(name) and name not in names:
                    batch.remove(os.path.join(self.path, name))

    @contextlib.contextmanager
    def _batch(self, **options):
        with contextlib.ExitStack() as stack:
            engine = self._engine or stack.enter_context(Engine(cache_bytes="8m"))
            self.fs.batch = stack.enter_context(engine.batch(**options))
            try:
                yield self.fs.batch
            finally:
                self.fs.batch = None

    @contextlib.contextmanager
    def _alone(self):
        """Keeps two jobs from publishing in a directory at once."""
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)
