"""Files and engines: what programs of Python expect of a binary file object."""

import errno
import io
import os
import pickle
import signal
import tarfile
import threading
import time
import zipfile

import forebay
import pytest

numpy = pytest.importorskip("numpy")


def test_a_file_does_what_the_built_in_one_does(engine, tmp_path):
    def steps(file):
        yield file.write(b"0123456789"), file.tell()
        yield file.seek(-4, 2), file.read(2), file.read(), file.read(5)
        yield file.seek(2), file.write(memoryview(b"ab")), file.seek(1, 1), file.readall()
        yield file.truncate(5), file.tell(), file.seek(0), file.readlines()
        yield file.readable(), file.writable(), file.seekable(), file.isatty()
        yield file.seek(20), file.write(b""), file.write(b"z"), file.seek(0), file.read(-1)

    with engine.open(tmp_path / "ours", "w+b") as ours:
        with open(tmp_path / "theirs", "w+b", buffering=0) as theirs:
            for one, other in zip(steps(ours), steps(theirs), strict=True):
                assert one == other
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize("mode", ["rb", "r+b", "wb", "w+b", "xb", "x+b", "ab", "a+b"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_mode_opens_what_it_opens_elsewhere(engine, tmp_path, mode, exists):
    def opened(open, path, **more):
        if exists:
            path.write_bytes(b"old")
        try:
            with open(path, mode, **more) as file:
                at, may = file.tell(), (file.readable(), file.writable())
                if file.writable():
                    file.write(b"new one")
        except OSError as error:
            return type(error), error.errno, error.filename
        return at, may, path.read_bytes()

    ours = opened(engine.open, tmp_path / "f")
    (tmp_path / "f").unlink(missing_ok=True)
    theirs = opened(open, tmp_path / "f", buffering=0)
    assert [str(one) for one in ours] == [str(one) for one in theirs]


def test_libraries_take_it_for_a_file(engine, tmp_path):
    array = numpy.arange(100_000, dtype="f8").reshape(100, -1)
    with engine.open(tmp_path / "all", "w+b") as file:
        pickle.dump({"a": array, "b": [1] * 1000}, file, protocol=5)
        middle = file.tell()
        numpy.save(file, array)
        end = file.tell()
        file.seek(0)
        assert pickle.load(file)["b"] == [1] * 1000
        file.seek(middle)
        assert (numpy.load(file) == array).all() and file.tell() == end
        with io.BufferedWriter(file) as buffered:
            numpy.save(buffered, array)
    with engine.open(tmp_path / "zip", "w+b") as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("one", b"1" * 100_000)
        with zipfile.ZipFile(file) as archive:
            assert archive.read("one") == b"1" * 100_000
    with engine.open(tmp_path / "tar", "wb") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(tmp_path / "zip", "zip")
    with engine.open(tmp_path / "tar") as file, tarfile.open(fileobj=file) as archive:
        assert archive.getnames() == ["zip"]
    with io.TextIOWrapper(engine.open(tmp_path / "text", "wb"), "utf-8") as text:
        text.write("zwölf\n" * 3)
    with io.TextIOWrapper(io.BufferedReader(engine.open(tmp_path / "text")), "utf-8") as text:
        assert list(text) == ["zwölf\n"] * 3


def test_safetensors_pass_through_a_file(engine, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {"weight": numpy.ones((300, 200), "f4"), "bias": numpy.arange(200)}
    with engine.open(tmp_path / "model.safetensors", "wb") as file:
        file.write(safetensors.save(tensors))
        file.sync_data()
    with engine.open(tmp_path / "model.safetensors") as file:
        loaded = safetensors.load(file.readall())
    assert all((loaded[name] == tensors[name]).all() for name in tensors)
    loaded = safetensors.load_file(tmp_path / "model.safetensors")
    assert (loaded["bias"] == tensors["bias"]).all()


def test_calls_with_an_offset_use_the_memory_of_any_contiguous_object(engine, tmp_path):
    array = numpy.arange(6, dtype="i4").reshape(2, 3)
    with engine.open(tmp_path / "f", "w+b") as file:
        file.write_at(0, array)
        into = numpy.zeros(6, "i4")
        assert file.read_at(0, into) == 24 and (into == array.ravel()).all()
        assert file.append(bytearray(b"tail")) == 24 and file.size() == 28
        assert file.read_at(26, memoryview(bytearray(9))[1:5]) == 2
        assert file.read_at(10, bytearray()) == 0 and file.tell() == 0
        with pytest.raises(BufferError):
            file.write(array.T)
        for buffer in (b"bytes", memoryview(b"bytes")):
            with pytest.raises(TypeError):
                file.readinto(buffer)
        for data in ("text", 5, None):
            with pytest.raises(TypeError):
                file.write(data)
        for call in (lambda: file.seek(-1), lambda: file.seek(0, 7), lambda: file.truncate(-1),
                     lambda: file.write_at(-1, b""), lambda: file.seek("1")):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                call()
        assert file.size() == 28


def test_errors_are_those_of_python(engine, tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        engine.open(tmp_path / "none" / "f", "wb")
    assert raised.value.errno == errno.ENOENT
    assert raised.value.filename == str(tmp_path / "none" / "f")
    assert raised.value.strerror.startswith("could not open")
    for options in ({"cache_bytes": 5}, {"dirty_age": "soon"}, {"no_such_option": 1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            forebay.Engine(**options)
    for mode in ("t", "rt", "wbb", "", "rw"):
        with pytest.raises(ValueError):
            engine.open(tmp_path / "f", mode)
    with engine.open(tmp_path / "f", "wb") as file:
        with pytest.raises(io.UnsupportedOperation):
            file.read(1)
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
        with pytest.raises(OSError) as raised:
            file.write_at(1 << 62, b"far")
        assert raised.value.errno in (errno.EFBIG, errno.EINVAL)
    with engine.open(tmp_path / "f") as file, pytest.raises(io.UnsupportedOperation):
        file.write(b"x")
    with pytest.raises(TypeError):
        engine.open(5)


def test_closed_objects_say_so(tmp_path):
    engine = forebay.Engine(cache_bytes="8m")
    with engine.open(tmp_path / "f", "wb") as file:
        pass
    file.close()
    for call in (file.tell, file.sync_data, file.readable, file.size, lambda: file.write(b""),
                 lambda: file.write_at(0, b""), file.flush, file.__enter__):
        with pytest.raises(ValueError, match="closed file"):
            call()
    left = engine.open(tmp_path / "f", "wb")
    engine.shutdown()
    engine.shutdown()
    for call in (left.sync_data, left.close, lambda: engine.open(tmp_path / "f"),
                 lambda: engine.batch().write(tmp_path / "g", b"")):
        with pytest.raises(forebay.ShutdownError):
            call()
    assert engine.stats()["dirty_bytes"] == 0


def test_names_of_any_bytes(engine, tmp_path):
    raw = os.fsencode(tmp_path) + b"/\xff\xfe name"
    with engine.open(raw, "wb") as file:
        file.write(b"1")
    assert os.listdir(raw.rpartition(b"/")[0]) == [b"\xff\xfe name"]
    with engine.open(os.fsdecode(raw)) as file:
        assert file.read() == b"1"
    with pytest.raises(FileExistsError) as raised:
        engine.open(raw, "xb")
    assert os.fsencode(raised.value.filename) == raw
    with engine.batch() as batch:
        batch.write(raw + b" too", b"2")
    with pytest.raises((ValueError, OSError)):
        engine.open(tmp_path / "a\0b", "wb")


def test_an_unclosed_file_is_written_and_warned_of(engine, tmp_path):
    file = engine.open(tmp_path / "f", "wb")
    file.write(b"x" * 5000)
    with pytest.warns(ResourceWarning, match="unclosed file"):
        del file
    with engine.open(tmp_path / "f") as file:
        assert file.size() == 5000
    assert engine.late_errors() == []


def test_threads_share_a_file(engine, tmp_path):
    with engine.open(tmp_path / "f", "w+b") as file:
        def write(letter):
            for _ in range(200):
                file.write(letter * 100)
                at = file.append(letter * 50)
                into = bytearray(50)
                assert file.read_at(at, into) == 50

        run(*(lambda letter=letter: write(letter) for letter in (b"a", b"b", b"c", b"d")))
        assert file.size() >= 4 * 200 * 50


def test_a_buffer_may_change_while_it_is_written(engine, tmp_path):
    data = bytearray(4 << 20)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            data[:] = bytes([data[0] ^ 255]) * len(data)

    with engine.open(tmp_path / "f", "wb") as file:
        def write():
            try:
                for _ in range(10):
                    file.write_at(0, data)
            finally:
                stop.set()

        run(change, write)
        assert file.size() == len(data)
    file = engine.open(tmp_path / "f", "r+b")
    reads = [lambda: file.read_at(0, data) for _ in range(4)]
    run(*reads)
    file.close()


def test_other_threads_run_while_a_call_waits(tmp_path):
    """4 MiB of dirty bytes at most: a write of 64 MiB waits for the device."""
    with forebay.Engine(cache_bytes="8m", dirty_bytes="4m") as engine:
        with engine.open(tmp_path / "f", "wb") as file:
            steps = 0
            writer = threading.Thread(target=file.write, args=(bytes(64 << 20),))
            writer.start()
            while writer.is_alive():
                steps += 1
                time.sleep(0.001)
            assert steps > 3 and file.tell() == 64 << 20


def test_an_interrupt_waits_for_the_call(tmp_path):
    with forebay.Engine(cache_bytes="8m", dirty_bytes="4m") as engine:
        with engine.open(tmp_path / "f", "wb") as file:
            timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                for _ in range(1000):
                    file.write(bytes(1 << 20))
            timer.join()
            assert file.tell() % (1 << 20) == 0
            assert file.size() == file.tell()
            file.truncate(0)


def test_many_files_sync_together_and_copy(engine, tmp_path):
    files = [engine.open(tmp_path / str(index), "w+b") for index in range(5)]
    for file in files:
        file.write(b"x" * 10_000)
    engine.sync_many(files)
    assert engine.copy(files[0], files[1]) == 10_000
    with pytest.raises(ValueError):
        engine.copy(files[0], files[0])
    with forebay.Engine(cache_bytes="8m") as other:
        with pytest.raises(forebay.SyncManyError) as raised:
            other.sync_many(files[:2])
        assert [index for index, _ in raised.value.errors] == [0, 1]
    for file in files:
        file.close()
    with pytest.raises(ValueError):
        engine.sync_many(files)


def run(*calls):
    """Runs calls in threads, and raises the first exception."""
    errors = []

    def guarded(call):
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
