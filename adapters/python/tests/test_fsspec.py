"""The tests that fsspec has for every file system, and what this one adds."""

import pytest

fsspec = pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")

from forebay.fsspec import ForebayFileSystem  # noqa: E402

# Of fsspec's own fixtures.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestRemovedIn10Warning")


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return ForebayFileSystem(auto_mkdir=True, cache_bytes="16m")

    @pytest.fixture
    def fs_path(self, tmpdir):
        return str(tmpdir)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


@pytest.fixture
def fs():
    return ForebayFileSystem(cache_bytes="16m")


def test_the_protocol_is_registered(tmp_path):
    url = f"forebay://{tmp_path}/f"
    with fsspec.open(url, "wb", cache_bytes="16m") as file:
        file.write(b"one\ntwo\n")
    with fsspec.open(url, "rt", cache_bytes="16m") as file:
        assert file.readlines() == ["one\n", "two\n"]
    fs, path = fsspec.url_to_fs(url, cache_bytes="16m")
    assert isinstance(fs, ForebayFileSystem) and path == str(tmp_path / "f")
    assert fs.unstrip_protocol(path) == url
    assert fsspec.filesystem("forebay", cache_bytes="16m") is fs
    assert fs.engine.stats()["arena_bytes"] == 16 << 20


def test_a_new_file_is_there_once_it_is_closed(fs, tmp_path):
    path = str(tmp_path / "f")
    with fs.open(path, "wb") as file:
        file.write(b"1")
        assert not fs.exists(path)
    assert fs.cat_file(path) == b"1"
    with pytest.raises(ZeroDivisionError), fs.open(path, "wb") as file:
        file.write(b"2")
        1 / 0
    assert fs.cat_file(path) == b"1"
    with fs.open(path, "ab") as file:
        file.write(b"2")
    with fs.open(path, "r+b") as file:
        file.write(b"0")
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    assert fs.cat_file(path) == b"02" and fs.size(path) == 2


@pytest.mark.parametrize("through", ["fs.open", "fsspec.open"])
@pytest.mark.parametrize("mode", ["wb", "wt", "w", "xb"])
@pytest.mark.parametrize("compression", [None, "gzip", "infer"])
def test_a_failed_block_publishes_nothing(fs, tmp_path, through, mode, compression):
    path, url = str(tmp_path / "f.bz2"), f"forebay://{tmp_path}/f.bz2"
    opener, name = (fs.open, path) if through == "fs.open" else (fsspec.open, url)
    content = b"1" if "b" in mode else "1"

    with pytest.raises(ZeroDivisionError), opener(name, mode, compression=compression) as file:
        file.write(content)
        file.flush()
        1 / 0
    assert not fs.exists(path)
    for _ in range(2 if mode[0] == "w" else 1):
        with opener(name, mode, compression=compression) as file:
            file.write(content)
            assert not fs.exists(path) or mode[0] == "w"
        read = mode.replace("w", "r").replace("x", "r")
        with opener(name, read, compression=compression) as file:
            assert file.read() == content
    # As the program says so.
    other = fs.open(path, mode.replace("x", "w"), compression=compression)
    try:
        other.write(content * 2)
        1 / 0
    except ZeroDivisionError:
        other.close()
    with fsspec.open(url, read, compression=compression) as file:
        assert file.read() == content * 2


def test_a_transaction_publishes_all_or_nothing(fs, tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with pytest.raises(ZeroDivisionError), fs.transaction:
        fs.pipe_file(one, b"1")
        1 / 0
    assert fs.ls(str(tmp_path)) == [] or not fs.exists(one)
    with fs.transaction:
        fs.pipe_file(one, b"1")
        fs.pipe_file(two, b"2")
        with pytest.raises(ValueError):
            fs.open(one, "ab")
        assert not fs.exists(one)
    assert fs.cat([one, two]) == {one: b"1", two: b"2"}
    fs.pipe_file(one, b"3")
    assert fs.cat_file(one) == b"3"
