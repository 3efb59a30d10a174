"""Coroutines: many at a time, and cancelled ones."""

import asyncio
import threading

import forebay
import pytest


def test_every_call_has_a_coroutine(engine, tmp_path):
    async def main():
        file = await engine.asynchronous().open(tmp_path / "f", "w+b")
        view = file.asynchronous()
        await view.write_at(0, b"hello")
        assert await view.append(b" world") == 5
        into = bytearray(5)
        assert await view.read_at(6, into) == 5 and into == b"world"
        with pytest.raises(TypeError):
            await view.read_at(0, b"bytes")
        await view.sync_data()
        await view.sync_all()
        await view.write_out()
        assert await view.truncate(4) == 4
        async with (await engine.asynchronous().open(tmp_path / "g", "xb")).asynchronous() as other:
            assert await engine.asynchronous().copy(file, other._file) == 4
            await engine.asynchronous().sync_many([file, other._file])
        await view.close()
        assert file.closed and (tmp_path / "g").read_bytes() == b"hell"
        with pytest.raises(ValueError):
            await view.sync_data()
        with pytest.raises(FileNotFoundError):
            await engine.asynchronous().open(tmp_path / "none")
        await engine.asynchronous().shutdown()

    asyncio.run(main(), debug=True)


def test_many_operations_need_no_threads(tmp_path):
    async def one(engine, index):
        file = await engine.asynchronous().open(tmp_path / str(index), "w+b")
        async with file.asynchronous() as view:
            for step in range(4):
                await view.append(bytes([index]) * 9000)
                await view.sync_data()
            into = bytearray(36_000)
            assert await view.read_at(0, into) == 36_000 and into == bytes([index]) * 36_000

    async def main(engine):
        before = threading.active_count()
        await asyncio.gather(*(one(engine, index) for index in range(64)))
        assert threading.active_count() == before

    with forebay.Engine(cache_bytes="8m") as engine:
        for _ in range(2):
            asyncio.run(main(engine))


def test_a_cancelled_write_releases_its_buffer(tmp_path):
    """8 MiB of memory: a write of 128 MiB is cancelled while it waits for the device."""
    async def main(engine):
        file = engine.open(tmp_path / "f", "w+b")
        for delay in (0, 0.001, 0.01, 0.05):
            data = bytearray(128 << 20)
            write = asyncio.ensure_future(file.asynchronous().write_at(0, data))
            await asyncio.sleep(delay)
            if write.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await write
            data.clear()            # raises `BufferError` while the buffer is in use
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                while True:
                    await file.asynchronous().append(bytes(1 << 20))
                    await file.asynchronous().sync_data()
        file.truncate(0)
        await file.asynchronous().close()

    with forebay.Engine(cache_bytes="8m", dirty_bytes="4m") as engine:
        asyncio.run(main(engine))


def test_a_loop_may_end_before_its_operations(tmp_path):
    with forebay.Engine(cache_bytes="8m", dirty_bytes="4m") as engine:
        file = engine.open(tmp_path / "f", "wb")
        loop = asyncio.new_event_loop()
        task = loop.create_task(file.asynchronous().write_at(0, bytes(64 << 20)))
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()
        file.truncate(0)
        file.close()
