"""Buffered file I/O in user space for Linux, over io_uring.

An `Engine` keeps written data in a fixed amount of memory and writes it to ordinary files in large,
ordered requests. `Engine.open` returns a `File`, which fits wherever Python takes a binary file.

>>> import forebay
>>> with forebay.Engine(cache_bytes=64 << 20) as engine:
...     with engine.open("a.log", "ab") as log:
...         offset = log.append(b"record\\n")     # a copy into memory
...         log.sync_data()                       # durable from here on
>>> offset
0

After a write the data is in memory. After `close` it survives the death of the process. After
`sync_data` it survives a power cut. When the interpreter ends, every engine writes its data out.

Errors are `OSError` with its subclasses (`FileNotFoundError`), and `ValueError` for arguments and
closed files. A call that waits lets other threads run. It ends before a `KeyboardInterrupt` is
raised: nothing that was accepted is lost. A child made by `fork` gets `ForkedError`.
"""

from ._asynchronous import AsyncEngine, AsyncFile
from ._checkpoint import Checkpoint, NewCheckpoint, checkpoint, latest
from ._engine import Batch, BatchFile, Engine, File
from ._forebay import CommitError, ForkedError, PoisonedError, ShutdownError, SyncManyError

__all__ = [
    "AsyncEngine",
    "AsyncFile",
    "Batch",
    "BatchFile",
    "Checkpoint",
    "CommitError",
    "Engine",
    "File",
    "ForkedError",
    "NewCheckpoint",
    "PoisonedError",
    "ShutdownError",
    "SyncManyError",
    "checkpoint",
    "latest",
]
