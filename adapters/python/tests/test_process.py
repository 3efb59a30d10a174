"""Processes: forks, spawned children, and the end of the interpreter."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import forebay
import pytest


def in_child(call):
    """Returns the exit status of a forked child: 0 if the call raises `ForkedError`."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            call()
        except forebay.ForkedError:
            os._exit(0)
        except BaseException:
            os._exit(2)
        os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_gets_an_error(engine, tmp_path):
    """Also while threads of the parent are inside calls."""
    file = engine.open(tmp_path / "f", "w+b")
    stop = threading.Event()

    def write():
        while not stop.is_set():
            file.write(b"x" * 10_000)
            file.seek(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        calls = [
            lambda: file.write(b"y"), lambda: file.readall(), lambda: file.seek(0), file.sync_data,
            lambda: file.write_at(0, b"y"), file.close, engine.stats, engine.shutdown,
            lambda: engine.open(tmp_path / "g", "wb"), lambda: engine.batch(),
            lambda: engine.sync_many([file]),
        ]
        for call in calls:
            assert in_child(call) == 0
    finally:
        stop.set()
        writer.join()
    file.write_at(0, b"parent")
    file.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_ends_and_has_engines_of_its_own(tmp_path):
    program = """if True:
        import os, sys, forebay
        engine = forebay.Engine(cache_bytes="8m")
        file = engine.open("parent", "wb")
        file.write(b"parent")
        child = os.fork()
        if child == 0:
            del file
            with forebay.Engine(cache_bytes="8m") as own, own.open("child", "wb") as other:
                other.write(b"child")
            sys.exit(0)     # with the handlers of exit
        assert os.waitpid(child, 0)[1] == 0
        file.close()
    """
    assert python(program, tmp_path) == ""
    assert (tmp_path / "parent").read_bytes() + (tmp_path / "child").read_bytes() == b"parentchild"


def spawned(path):
    with forebay.Engine(cache_bytes="8m") as engine, engine.open(path, "ab") as file:
        file.append(b"line\n")
        file.sync_data()
    return os.getpid()


def test_a_spawned_child_uses_the_package(tmp_path):
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(spawned, (str(tmp_path / "f"),)) != os.getpid()
    assert (tmp_path / "f").read_bytes() == b"line\n"
    with forebay.Engine(cache_bytes="8m") as engine, pytest.raises(TypeError, match="pickle"):
        context.Process(target=print, args=(engine,)).start()


def test_an_interpreter_ends_with_open_files(tmp_path):
    program = """if True:
        import forebay, sys
        engine = forebay.Engine(cache_bytes="8m")
        file = engine.open("f", "wb")
        file.write(b"x" * 3_000_000)
        batch = engine.batch()
        half = batch.create("half")
        half.write(b"half")
        sys.cycle = [engine, file, batch, half]
    """
    python(program, tmp_path)
    assert (tmp_path / "f").read_bytes() == b"x" * 3_000_000
    assert not (tmp_path / "half").exists()


def test_an_interpreter_ends_while_threads_and_loops_use_it(tmp_path):
    program = """if True:
        import asyncio, forebay, threading, time
        engine = forebay.Engine(cache_bytes="8m", dirty_bytes="4m")
        file = engine.open("f", "wb")
        def forever():
            while True:
                file.write_at(0, bytes(8 << 20))
        for _ in range(3):
            threading.Thread(target=forever, daemon=True).start()
        async def main():
            other = engine.open("g", "wb")
            asyncio.ensure_future(other.asynchronous().write_at(0, bytes(64 << 20)))
            await asyncio.sleep(0.05)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
    """
    for _ in range(3):
        python(program, tmp_path, quiet=False)


def test_a_killed_process_has_what_it_synced(tmp_path):
    program = """if True:
        import forebay, os, signal
        engine = forebay.Engine(cache_bytes="8m")
        file = engine.open("f", "wb")
        file.write(b"synced")
        file.sync_data()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "f").read_bytes() == b"synced"


def python(program, directory, quiet=True):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=directory,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and (not quiet or done.stderr == ""), done
    return done.stdout
