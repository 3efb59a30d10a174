"""The writer for `torch.distributed.checkpoint`, read by torch's own reader."""

import os
import random
import signal
import subprocess
import sys

import crashes
import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from forebay.torch import Writer  # noqa: E402

# Of torch itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:Detected an existing checkpoint:UserWarning"),
]


def state(step):
    return {"weights": {str(index): torch.full((64, 1024), step + index) for index in range(8)},
            "step": step}


def load(directory):
    """Returns the step of the checkpoint. All tensors must be of that step."""
    found = state(-100)
    dcp.load(found, storage_reader=dcp.FileSystemReader(directory), no_dist=True)
    for index, tensor in found["weights"].items():
        assert (tensor == found["step"] + int(index)).all()
    return found["step"]


def save(directory, step, **options):
    dcp.save(state(step), storage_writer=Writer(directory, **options), no_dist=True)


@pytest.mark.parametrize("options", [{}, {"thread_count": 3}, {"single_file_per_rank": False}])
def test_the_reader_of_torch_loads_what_it_wrote(tmp_path, engine, options):
    directory = tmp_path / "new" / "model"
    for step in range(3):
        save(directory, step, engine=engine if step else None, **options)
        assert load(directory) == step
    files = options.get("thread_count", 1) if options.get("single_file_per_rank", True) else 9
    assert len(os.listdir(directory)) == files + 1


def test_a_failed_save_leaves_the_one_before(tmp_path):
    dcp.save(state(1), checkpoint_id=tmp_path, no_dist=True)        # of torch's own writer
    (tmp_path / "notes.txt").write_text("mine")

    class Planner(dcp.DefaultSavePlanner):
        def resolve_data(self, item):
            if "5" in item.index.fqn:
                raise ZeroDivisionError
            return super().resolve_data(item)

    for options in ({}, {"single_file_per_rank": False}):
        with pytest.raises(dcp.api.CheckpointException):
            dcp.save(state(2), storage_writer=Writer(tmp_path, **options), planner=Planner(),
                     no_dist=True)
        assert load(tmp_path) == 1
        assert sorted(os.listdir(tmp_path)) == [".metadata", "__0_0.distcp", "notes.txt"]
    save(tmp_path, 3)
    assert load(tmp_path) == 3 and len(os.listdir(tmp_path)) == 3
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(dcp.api.CheckpointException, match="already exists"):
        save(tmp_path, 4, overwrite=False)
    with pytest.raises(ValueError, match="use_collectives"):
        dcp.save(state(4), storage_writer=Writer(tmp_path), no_dist=True, use_collectives=False)
    assert load(tmp_path) == 3


def test_a_missing_file_of_a_rank_is_not_published(tmp_path):
    save(tmp_path, 1)

    class Elsewhere(Writer):
        def finish(self, metadata, results):
            os.remove(os.path.join(self.path, results[0][0].storage_data.relative_path))
            super().finish(metadata, results)

    with pytest.raises(dcp.api.CheckpointException, match="No such file"):
        dcp.save(state(2), storage_writer=Elsewhere(tmp_path), no_dist=True)
    assert load(tmp_path) == 1


def test_cached_plans_and_a_thread_save_too(tmp_path):
    planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
    writer = Writer(tmp_path)
    for step in range(3):
        dcp.save(state(step), storage_writer=writer, planner=planner, no_dist=True)
        assert load(tmp_path) == step
    assert len(os.listdir(tmp_path)) == 2


def test_ranks_publish_together(tmp_path):
    program = tmp_path / "ranks.py"
    program.write_text("""if True:
        import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
        from forebay.torch import Writer
        dist.init_process_group("gloo")
        rank, writer = dist.get_rank(), Writer(sys.argv[1])
        for step in range(3):
            dcp.save({f"of {rank}": torch.full((1000,), step)}, storage_writer=writer)
        if rank == 1:
            class Failing(Writer):
                def write_data(self, plan, planner):
                    raise ZeroDivisionError
            writer = Failing(sys.argv[1])
        try:
            dcp.save({f"of {rank}": torch.full((1000,), 3)}, storage_writer=writer)
        except dcp.api.CheckpointException:
            print("failed")
        dist.destroy_process_group()
    """)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         program, tmp_path / "model"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.count("failed") == 2, done
    for rank in range(2):
        found = {f"of {rank}": torch.zeros(1000)}
        dcp.load(found, checkpoint_id=tmp_path / "model", no_dist=True)
        assert (found[f"of {rank}"] == 2).all()
    # One of the save that failed, which the next one removes.
    assert len(os.listdir(tmp_path / "model")) == 4


RANKS = """if True:
    import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
    from forebay.torch import Writer
    torch.set_num_threads(1)

    def run(rank, directory, meeting, step):
        dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2)
        while True:
            if rank == 0:
                print("begun", step, flush=True)
            state = {f"{rank} {index}": torch.full((9000 * index,), step) for index in range(8)}
            dcp.save({**state, "step": step}, storage_writer=Writer(directory))
            if rank == 0:
                print("done", step, flush=True)
            step += 1

    # Forks, because to import torch takes longer than all the rest.
    for line in sys.stdin:
        *places, step = line.split()
        ranks = []
        for rank in range(2):
            ranks.append(os.fork())
            if ranks[-1] == 0:
                run(rank, *places, int(step))
        print("ranks", *ranks, flush=True)
        for rank in ranks:
            os.waitpid(rank, 0)
        print("ranks", flush=True)
"""


def found(directory):
    """Returns the step of the checkpoint. Everything in it, of both ranks, must be of that step."""
    if not os.path.exists(directory / ".metadata"):
        return 0
    names = [f"{rank} {index}" for rank in range(2) for index in range(8)]
    state = {name: torch.zeros(9000 * int(name[-1]), dtype=int) for name in names}
    state["step"] = 0
    dcp.load(state, storage_reader=dcp.FileSystemReader(directory), no_dist=True)
    assert all((state[name] == state["step"]).all() for name in names)
    return state["step"]


@pytest.fixture
def ranks():
    writer = crashes.Writer(RANKS)
    yield writer
    writer.end()


def crash(ranks, directory, meeting, step, kill):
    """Lets ranks write until `kill` ends them. Returns the last step that ended and that began."""
    ranks.begun, ranks.done = 0, step
    print(directory, meeting, step + 1, file=ranks.process.stdin, flush=True)
    ranks.wait_for(lambda: ranks.ranks and ranks.done > step)
    crashes.moment()
    done, pids = ranks.done, ranks.ranks
    kill(pids)
    # The others end by an error.
    ranks.wait_for(lambda: not ranks.ranks)
    return done, ranks.begun


@pytest.mark.parametrize("which", ["one", "all"])
def test_killed_ranks_leave_the_old_or_the_new(tmp_path, ranks, which):
    def kill(pids):
        for pid in [random.choice(pids)] if which == "one" else pids:
            os.kill(pid, signal.SIGKILL)

    step, new = 0, 0
    for turn in range(crashes.CRASHES):
        done, begun = crash(ranks, tmp_path / "model", tmp_path / f"meeting-{turn}", step, kill)
        step = found(tmp_path / "model")
        assert done <= step <= begun
        new += step > done
    print(f"{crashes.CRASHES} kills of {which}: {new} left the new one, step {step}")


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_cut_leaves_the_old_or_the_new(tmp_path, ranks, kind):
    step, new = 0, 0
    with crashes.disk(tmp_path, kind) as disk:
        for turn in range(crashes.CRASHES // 2):
            done, begun = crash(ranks, disk.path / "model", tmp_path / f"meeting-{turn}", step,
                                lambda pids: disk.cut())
            disk.reboot()
            step = found(disk.path / "model")
            assert done <= step <= begun
            new += step > done
    print(f"{crashes.CRASHES // 2} power cuts of {kind}: {new} left the new one, step {step}")


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path):
    with crashes.disk(tmp_path, "xfs") as disk:
        directory, filler = disk.path / "model", disk.path / "filler"
        save(directory, 1)
        with open(filler, "wb") as file:
            free = os.statvfs(disk.path)
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - (1 << 20))
        # `torch.save` hides the error of its file behind one of its own.
        with pytest.raises(dcp.api.CheckpointException):
            save(directory, 2)
        assert load(directory) == 1 and len(os.listdir(directory)) == 2
        filler.unlink()
        save(directory, 3)
        assert load(directory) == 3
