"""The calls that wait, as coroutines. No thread waits: a waker of the engine wakes the loop."""

import asyncio
import weakref

from . import _forebay


class _Loop:
    """Operations of one event loop that have been polled and not ended."""

    def __init__(self, loop):
        self.wakes = _forebay.Wakes()
        self.running = {}
        loop.add_reader(self.wakes.fileno(), self.wake)

    def wake(self):
        for key in self.wakes.take():
            _, future = self.running.get(key, (None, None))
            if future is not None and not future.done():
                future.set_result(None)


_loops = weakref.WeakKeyDictionary()


def abandon():
    """Ends all operations. An engine that shuts down would wait for those that nobody polls."""
    for ours in _loops.values():
        for operation, _ in ours.running.values():
            operation.cancel()


async def _run(operation):
    loop = asyncio.get_running_loop()
    ours = _loops.get(loop)
    if ours is None:
        ours = _loops[loop] = _Loop(loop)
    try:
        while (done := operation.poll(ours.wakes)) is None:
            future = loop.create_future()
            ours.running[operation.key] = operation, future
            await future
        return done[0]
    finally:
        ours.running.pop(operation.key, None)
        operation.cancel()


class AsyncFile:
    """The calls of a `File` that wait, as coroutines: `file.asynchronous()`.

    A call uses its buffer until it ends. A call that is cancelled releases it at once. It may have
    accepted a prefix of its data; a cancelled sync is carried out.

    >>> async def note(engine):
    ...     file = await engine.asynchronous().open("notes", "ab")
    ...     offset = await file.asynchronous().append(b"noted")
    ...     await file.asynchronous().sync_data()
    ...     await file.asynchronous().close()
    ...     return offset
    >>> with forebay.Engine() as engine:
    ...     asyncio.run(note(engine))
    0
    """

    def __init__(self, file):
        self._file = file
        self._handle = file._handle

    async def read_at(self, offset, buffer):
        """As `File.read_at`."""
        return await _run(self._handle.read_at_async(offset, buffer))

    async def write_at(self, offset, data):
        """As `File.write_at`. One step copies all that there is room for: split large writes."""
        await _run(self._handle.write_at_async(offset, data))

    async def append(self, data):
        """As `File.append`."""
        return await _run(self._handle.append_async(data))

    async def truncate(self, size):
        """As `File.truncate`."""
        await _run(self._handle.set_len_async(size))
        return size

    async def sync_data(self):
        """As `File.sync_data`."""
        await _run(self._handle.sync_data_async())

    async def sync_all(self):
        """As `File.sync_all`."""
        await _run(self._handle.sync_all_async())

    async def write_out(self):
        """As `File.write_out`."""
        await _run(self._handle.write_out_async())

    async def close(self):
        """As `File.close`."""
        try:
            await _run(self._handle.close_async())
        finally:
            self._file.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()


class AsyncEngine:
    """The calls of an `Engine` that wait, as coroutines: `engine.asynchronous()`."""

    def __init__(self, engine):
        self._engine = engine

    async def open(self, path, mode="rb", *, permissions=0o666, uncached=None, temporary=False,
                   assume_exclusive=False):
        """As `Engine.open`."""
        from ._engine import File, _opening

        opening = _opening(path, mode, permissions, uncached, temporary, assume_exclusive)
        return File(await _run(self._engine.open_async(opening)), path, opening["mode"])

    async def sync_many(self, files):
        """As `Engine.sync_many`."""
        await _run(self._engine.sync_async([file._handle for file in files]))

    async def copy(self, source, target):
        """As `Engine.copy`."""
        return await _run(self._engine.copy_async(source._handle, target._handle))

    async def shutdown(self, timeout=60):
        """As `Engine.shutdown`."""
        await _run(self._engine.stop_async(timeout))
