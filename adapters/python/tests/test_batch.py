"""Batches and checkpoints: all or nothing, and the previous files until then."""

import json
import os
import signal
import subprocess
import threading
import time

import forebay
import pytest


def test_a_batch_publishes_at_its_end(engine, tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    with engine.batch() as batch:
        batch.create_dir(tmp_path / "a" / "b")
        with batch.create(tmp_path / "a" / "b" / "c") as file:
            assert file.write(b"12") == 2 and file.tell() == 2 and not file.readable()
            file.set_mode(0o600)
        batch.write(tmp_path / "new", b"new")
        batch.rename(tmp_path / "old", tmp_path / "kept")
        with pytest.raises(FileNotFoundError):
            batch.remove(tmp_path / "none")
        with pytest.raises(FileExistsError):
            batch.create(tmp_path / "old", new=True)
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "a" / "b" / "c").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "kept").read_bytes() == b"old" and not (tmp_path / "old").exists()
    with pytest.raises(ValueError, match="batch has ended"):
        batch.commit()


def test_an_exception_publishes_nothing(engine, tmp_path):
    with pytest.raises(ZeroDivisionError), engine.batch() as batch:
        batch.write(tmp_path / "whole", b"whole")
        with batch.create(tmp_path / "half") as file:
            file.write(b"ha")
            1 / 0
    assert visible(tmp_path) == []
    with pytest.raises(ZeroDivisionError), engine.batch() as batch:
        with batch.create(tmp_path / "x") as file:
            1 / 0
    batch.discard()


def test_a_file_that_is_not_closed_prevents_the_commit(engine, tmp_path):
    batch = engine.batch()
    batch.write(tmp_path / "whole", b"whole")
    batch.create(tmp_path / "half").write(b"ha")
    with pytest.raises(forebay.CommitError) as raised:
        batch.commit()
    assert {state for _, state in raised.value.targets} == {"old"}
    assert raised.value.errors and visible(tmp_path) == []


def test_a_checkpoint_replaces_the_one_before(engine, tmp_path):
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    assert forebay.latest(tmp_path) is None
    weights = {str(index): numpy.full((64, 1024), index, "f4") for index in range(8)}
    for step in range(3):
        with forebay.checkpoint(tmp_path, engine) as new:
            new.write_all({
                f"rank{index}/part.npy": lambda file, part=part: numpy.save(file, part + step)
                for index, part in enumerate(weights.values())
            })
            with new.create("model.safetensors") as file:
                file.write(safetensors.save(weights))
            assert step == 0 or forebay.latest(tmp_path).number == step
        latest = forebay.latest(tmp_path)
        assert latest.number == step + 1 and len(latest.files) == 9
        with engine.open(latest.path("rank3/part.npy")) as file:
            assert (numpy.load(file) == 3 + step).all()
        loaded = safetensors.load_file(latest.path("model.safetensors"))
        assert (loaded["5"] == weights["5"]).all()
        assert visible(tmp_path) == [f"checkpoint-{step + 1}", "checkpoint.json"]
    with pytest.raises(KeyError):
        latest.path("other")


def test_a_failed_checkpoint_leaves_the_last_one(tmp_path):
    checkpoint(tmp_path, a=b"1")
    with pytest.raises(ZeroDivisionError), forebay.checkpoint(tmp_path) as new:
        new.write("a", b"2")
        new.write_all({"b": lambda file: 1 / 0})
    for name in ("/a", "../a", "a//b", "", "."):
        with pytest.raises(ValueError), forebay.checkpoint(tmp_path) as new:
            new.create(name)
    with pytest.raises(ValueError, match="repeated"), forebay.checkpoint(tmp_path) as new:
        new.write("a", b"1")
        new.write("a", b"2")
    with pytest.raises(forebay.CommitError), forebay.checkpoint(tmp_path) as new:
        new.create("open")
    assert read(tmp_path, "a") == b"1" and forebay.latest(tmp_path).number == 1
    assert visible(tmp_path) == ["checkpoint-1", "checkpoint.json"]


def test_an_interrupt_ends_a_checkpoint(tmp_path):
    checkpoint(tmp_path, a=b"1")
    begun = []

    def write(file):
        begun.append(file)
        if len(begun) == 5:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.02)
        file.write(b"2")

    with pytest.raises(KeyboardInterrupt), forebay.checkpoint(tmp_path) as new:
        new.write_all({str(index): write for index in range(1000)})
    assert len(begun) < 1000 and read(tmp_path, "a") == b"1"
    assert visible(tmp_path) == ["checkpoint-1", "checkpoint.json"]


def test_a_checkpoint_of_names_that_cannot_be_decoded(tmp_path):
    directory = os.fsencode(tmp_path) + b"/\xff"
    for content in (b"1", b"2"):
        with forebay.checkpoint(directory) as new:
            new.write("\udcfe/\udcfd", content)
        assert read(directory, "\udcfe/\udcfd") == content
    assert len(os.listdir(directory + b"/checkpoint-2/\xfe")) == 1


def test_files_without_a_manifest_go_with_the_next_checkpoint(tmp_path):
    """As after a crash between the names of the files and that of the manifest."""
    checkpoint(tmp_path, a=b"1")
    (tmp_path / "checkpoint-2" / "deep").mkdir(parents=True)
    (tmp_path / "checkpoint-2" / "deep" / "b").write_bytes(b"stray")
    assert read(tmp_path, "a") == b"1"
    checkpoint(tmp_path, a=b"3")
    assert forebay.latest(tmp_path).number == 3
    assert visible(tmp_path) == ["checkpoint-3", "checkpoint.json"]


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    for text in ("{}", "[]", "no json", json.dumps({"format": "other 1"})):
        (tmp_path / "checkpoint.json").write_text(text)
        for call in (forebay.latest, forebay.checkpoint):
            with pytest.raises(ValueError, match="choose another directory"):
                call(tmp_path)
        assert (tmp_path / "checkpoint.json").read_text() == text
    other = tmp_path / "other"
    other.mkdir()
    (other / "weights.pt").write_bytes(b"mine")
    (other / "checkpoint-final").mkdir()
    checkpoint(other, a=b"1")
    checkpoint(other, a=b"2")
    assert (other / "weights.pt").read_bytes() == b"mine" and (other / "checkpoint-final").is_dir()
    with pytest.raises(OSError):
        forebay.checkpoint(other / "weights.pt")


def test_two_writers_of_a_directory_are_kept_apart(tmp_path):
    with forebay.checkpoint(tmp_path) as new:
        with pytest.raises(BlockingIOError, match="another checkpoint"):
            forebay.checkpoint(tmp_path)
        new.write("a", b"1")
    assert read(tmp_path, "a") == b"1"


def test_a_damaged_checkpoint_is_named(tmp_path):
    checkpoint(tmp_path, a=b"1", b=b"2")
    path = forebay.latest(tmp_path).path("b")
    os.truncate(path, 0)
    with pytest.raises(ValueError, match="not the 1 bytes"):
        forebay.latest(tmp_path)
    os.remove(path)
    with pytest.raises(ValueError, match="missing"):
        forebay.latest(tmp_path)


def test_a_reader_beside_a_writer_finds_a_whole_checkpoint(tmp_path, engine):
    checkpoint(tmp_path, a=b"0", b=b"0")
    ended = threading.Event()

    def write():
        for step in range(15):
            with forebay.checkpoint(tmp_path, engine) as new:
                new.write_all({name: b"%d" % step for name in "ab"})
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    numbers = []
    while not ended.is_set():
        numbers.append(forebay.latest(tmp_path).number)
    writer.join()
    assert numbers == sorted(numbers) and forebay.latest(tmp_path).number == 16


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root mounts a small file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path])
    if mounted.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        checkpoint(tmp_path, a=b"1" * (1 << 20))
        with pytest.raises(OSError) as raised:
            checkpoint(tmp_path, a=b"2" * (1 << 20), b=b"2" * (16 << 20))
        assert "No space left" in str(raised.value)
        assert read(tmp_path, "a") == b"1" * (1 << 20)
        checkpoint(tmp_path, a=b"3")
        assert read(tmp_path, "a") == b"3"
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def checkpoint(directory, **contents):
    with forebay.checkpoint(directory) as new:
        new.write_all(contents)


def read(directory, name):
    with open(forebay.latest(directory).path(name), "rb") as file:
        return file.read()


def visible(directory):
    return sorted(name for name in os.listdir(directory) if not name.startswith(".forebay"))
