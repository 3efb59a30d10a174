"""Checkpoints of numpy and safetensors whose writer dies: the last one found is old or whole."""

import crashes
import forebay
import pytest

numpy = pytest.importorskip("numpy")
safetensors = pytest.importorskip("safetensors.numpy")

PROGRAM = """if True:
    import forebay, numpy, safetensors.numpy, sys
    directory, step = sys.argv[1], int(sys.argv[2])
    while True:
        print("begun", step, flush=True)
        arrays = {str(index): numpy.full(9000 * index, step) for index in range(8)}
        with forebay.checkpoint(directory) as new:
            new.write_all({
                f"rank{index}/part.npy": lambda file, array=array: numpy.save(file, array)
                for index, array in arrays.items()
            })
            new.write("model.safetensors", safetensors.numpy.save(arrays))
        print("done", step, flush=True)
        step += 1
"""


def found(directory):
    """Returns the step of the latest checkpoint. Everything in it must be of that step."""
    latest = forebay.latest(directory)
    if latest is None:
        return 0
    arrays = safetensors.load_file(latest.path("model.safetensors"))
    step = int(arrays["1"][0])
    assert len(arrays) == 8 and len(latest.files) == 9
    for index, array in arrays.items():
        part = numpy.load(latest.path(f"rank{index}/part.npy"))
        assert len(array) == len(part) == 9000 * int(index)
        assert (array == step).all() and (part == step).all()
    return step


def test_a_killed_writer_leaves_the_old_or_the_new(tmp_path):
    step, new = 0, 0
    for _ in range(crashes.CRASHES):
        writer = crashes.Writer(PROGRAM, tmp_path, step + 1)
        writer.wait_for(lambda: writer.begun)
        crashes.moment()
        writer.end()
        before = writer.done or step
        step = found(tmp_path)
        assert before <= step <= writer.begun
        new += step > before
    print(f"{crashes.CRASHES} kills: {new} left the new one, step {step}")


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_cut_leaves_the_old_or_the_new(tmp_path, kind):
    step, new = 0, 0
    with crashes.disk(tmp_path, kind) as disk:
        for _ in range(crashes.CRASHES // 2):
            writer = crashes.Writer(PROGRAM, disk.path / "model", step + 1)
            writer.wait_for(lambda: writer.done)
            crashes.moment()
            before = writer.done or step
            disk.cut()
            # By an error of the dead file system.
            assert writer.end(kill=False) == 1
            disk.reboot()
            step = found(disk.path / "model")
            assert before <= step <= writer.begun
            new += step > before
    print(f"{crashes.CRASHES // 2} power cuts of {kind}: {new} left the new one, step {step}")
