"""The place of a report: a new source and mount point on the judged file system.

    def report(place):
        place.only_mount()              # if it is about the mount's own process
        place.mount("--no-survive")     # on plain files, place.point is the source from here on
        ...
        return same("content", ..., ...)

Everything below `place.top` is unmounted and removed afterwards, and all processes that the report
has started are killed.
"""

import ctypes
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess

from .judge import Failed, Skip, must_run
from .mounts import Mount, is_mounted, mount_points, program, sweep

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reports.d")


def sync(path):
    """Syncs the file system of a path. A sync of all would wait for what others write."""
    file = os.open(path, os.O_RDONLY)
    done = ctypes.CDLL(None, use_errno=True).syncfs(file)
    os.close(file)
    if done:
        raise OSError(ctypes.get_errno(), "syncfs", path)


def each():
    """Names and functions of the reports, in order."""
    for name in sorted(os.listdir(HERE)):
        if name[:2].isdigit():
            loader = importlib.machinery.SourceFileLoader(name, os.path.join(HERE, name))
            module = importlib.util.module_from_spec(
                importlib.util.spec_from_loader(name, loader))
            loader.exec_module(module)
            yield os.path.splitext(name)[0], module.report


def run(judge, name, report):
    """Runs one report. Returns whether it ran; one that is left out is a note."""
    place = Place(judge, name)
    try:
        judge.test(name, tested, report, place)
        return True
    except LeftOut as why:
        judge.note(f"{name}: left out: {why}")
        return False
    finally:
        place.end()


def tested(report, place):
    try:
        return report(place)
    except Skip as why:
        if must_run() and getattr(why, "is_missing", False):
            raise Failed(str(why)) from None
        raise LeftOut(str(why)) from None


class LeftOut(BaseException):
    """A report does not concern this place; the text says why."""


class Place:
    def __init__(self, judge, name):
        mount = Mount.of_this_judge()
        self.is_plain = not mount
        self.options = [] if self.is_plain else mount.load()["options"]
        self.program = None if self.is_plain else mount.load()["program"]
        below = judge.directory if self.is_plain else \
            os.path.join(os.path.dirname(mount.load()["source"]), "reports")
        self.top = os.path.join(below, name)
        self.source, self.point = self.path("source"), self.path("mount")
        self.log = self.path("log")
        for path in (self.source, self.point):
            os.makedirs(path)
        self.afterwards = []

    def path(self, *parts):
        return os.path.join(self.top, *parts)

    def only_mount(self):
        """Leaves the report out on plain files."""
        if self.is_plain:
            raise Skip("it is about the process of a mount")

    def forebay(self, *words, **options):
        """Runs the program; returns its exit code and its output."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "timeout": 60,
                   "stderr": subprocess.STDOUT, "text": True, **options}
        command = [self.program or program(), *map(os.fspath, words)]
        try:
            done = subprocess.run(command, **options)
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(command)}: no end after {options['timeout']} s") from None
        return done.returncode, done.stdout

    def mount_words(self, source, point, *options):
        """Words of a command that mounts in the background, with the knobs of the judged mount."""
        return ["mount", source, point, "--background", "--log", self.log, *self.options, *options]

    def mount(self, *options):
        """Mounts the source."""
        if self.is_plain:
            self.point = self.source
            return
        code, said = self.forebay(*self.mount_words(self.source, self.point, *options))
        if code:
            raise Failed(f"mount: exit code {code}: {said}")

    def unmount(self):
        """Makes everything durable."""
        if self.is_plain:
            sync(self.source)
            return
        code, said = self.forebay("unmount", self.point)
        if code or is_mounted(self.point):
            raise Failed(f"unmount: exit code {code}: {said}")

    def end(self):
        for function in reversed(self.afterwards):
            function()
        for point in reversed(mount_points()):
            if point.startswith(self.top + "/"):
                if self.program:
                    # Its daemon ends, and so does its keeper.
                    subprocess.run([self.program, "unmount", point], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   timeout=60)
                subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL)
        sweep(None)
        if os.environ.get("JUDGES_KEEP") != "1":
            shutil.rmtree(self.top)
