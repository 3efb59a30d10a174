"""Programs that write checkpoints until they are killed, or until their disk loses its power.

`FOREBAY_TEST_KILLS=N` makes N crashes in each test instead of a few.
"""

import contextlib
import fcntl
import os
import random
import subprocess
import sys
import threading
import time

import pytest

CRASHES = int(os.environ.get("FOREBAY_TEST_KILLS", 4))
SHUTDOWN, WITHOUT_LOG = 0x8004587D, b"\x02\0\0\0"


class Writer:
    """A program that prints `begun N` and `done N` for each step N."""

    def __init__(self, program, *arguments):
        self.begun = self.done = 0
        self.ranks = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            kind, *numbers = line.split() or [None]
            if kind == "ranks":
                self.ranks = list(map(int, numbers))
            elif kind in ("begun", "done"):
                setattr(self, kind, int(numbers[0]))

    def wait_for(self, condition):
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.001)

    def end(self, kill=True):
        """Waits until everything that it has printed is read. Returns its exit status."""
        if kill:
            self.process.kill()
        self.process.stdin.close()
        status = self.process.wait(60)
        self._reader.join(60)
        self.process.stdout.close()
        return status


def moment():
    time.sleep(random.uniform(0, 0.3))


class Disk:
    """A file system on a loop device. Root makes it."""

    def __init__(self, directory, kind):
        self._image, self.path = directory / f"{kind}.image", directory / kind
        # A copy of the mount in a namespace of another program keeps the old device.
        self._options = "nouuid" if kind == "xfs" else "rw"
        self.path.mkdir()
        with open(self._image, "wb") as image:
            image.truncate(512 << 20)
        try:
            subprocess.run([f"mkfs.{kind}", "-q", self._image], check=True)
            self._mount()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no file system on a loop device: {error}")

    def _mount(self):
        attached = ["losetup", "--find", "--show", self._image]
        device = subprocess.check_output(attached, text=True).strip()
        try:
            subprocess.run(["mount", "-o", self._options, device, self.path], check=True)
        finally:
            # As soon as it is unmounted.
            subprocess.run(["losetup", "--detach", device], check=True)

    def cut(self):
        """Stops the file system at once, without its journal (as xfstests' godown)."""
        top = os.open(self.path, os.O_RDONLY)
        fcntl.ioctl(top, SHUTDOWN, WITHOUT_LOG)
        os.close(top)

    def unmount(self):
        # A descriptor of a killed process may be closed a moment late.
        for _ in range(100):
            if subprocess.run(["umount", self.path], capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        subprocess.run(["umount", "--lazy", self.path], check=True)
        raise AssertionError("the file system is in use")

    def reboot(self):
        self.unmount()
        self._mount()


@contextlib.contextmanager
def disk(directory, kind):
    made = Disk(directory, kind)
    try:
        yield made
    finally:
        made.unmount()
