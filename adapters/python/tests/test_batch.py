"""Batches: all or nothing."""

import os

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


def visible(directory):
    return sorted(name for name in os.listdir(directory) if not name.startswith(".forebay"))
