"""A Forebay mount: started, killed, started again, and taken away.

The state is a file, so that a judge which kills the daemon and mounts again leaves it to the
runner in order. `JUDGES_MOUNT` names that file; it is not set where a judge runs on plain files.
"""

import ctypes
import json
import os
import re
import select
import signal
import subprocess
import time

from .judge import Failed, Skip
from .programs import TOP
from .scratch import SERVERS

STARTS_WITHIN = 20
ENDS_WITHIN = 120


class Mount:
    """A mount over a directory."""

    def __init__(self, state):
        self.state = state

    @classmethod
    def of_this_judge(cls):
        """The mount that a judge runs on; `None` on plain files."""
        state = os.environ.get("JUDGES_MOUNT")
        return cls(state) if state else None

    @classmethod
    def make(cls, state, program, source, point, options=(), prefix=()):
        """Describes a mount and starts it; `prefix` is a command that starts its command."""
        os.makedirs(point, exist_ok=True)
        mount = cls(state)
        mount.save({"program": program, "source": source, "point": point,
                    "options": list(options), "prefix": list(prefix), "pid": None,
                    "log": state + ".log"})
        try:
            mount.start()
        except BaseException:
            mount.end()
            raise
        return mount

    def load(self):
        with open(self.state) as file:
            return json.load(file)

    def save(self, fields):
        with open(self.state + ".new", "w") as file:
            json.dump(fields, file)
        os.rename(self.state + ".new", self.state)

    @property
    def pid(self):
        return self.load()["pid"]

    @property
    def is_plain(self):
        return "--plain" in self.load()["options"]

    def start(self):
        """Starts the daemon and waits for the mount."""
        fields = self.load()
        command = [*fields["prefix"], fields["program"], "mount", fields["source"],
                   fields["point"], *fields["options"]]
        with open(fields["log"], "a") as log:
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      start_new_session=True)
        fields["pid"] = daemon.pid
        self.save(fields)
        end = time.monotonic() + STARTS_WITHIN
        while not is_mounted(fields["point"]):
            if daemon.poll() is not None:
                raise Failed(f"{' '.join(command)}: exit code {daemon.returncode}: {self.log()}")
            if time.monotonic() > end:
                raise Failed(f"{' '.join(command)}: no mount after {STARTS_WITHIN} s")
            time.sleep(0.01)
        self.daemon = daemon

    def stop(self):
        """Unmounts; returns what went wrong, or an empty text."""
        fields = self.load()
        command = [fields["program"], "unmount", fields["point"]]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            return f"forebay unmount: no end after {ENDS_WITHIN} s"
        if done.returncode:
            return f"forebay unmount: exit code {done.returncode}: {done.stdout}"
        if is_mounted(fields["point"]):
            return "forebay unmount: exit code 0, but it is still mounted"
        if is_alive(fields["pid"]) and not reap(self, fields["pid"]):
            return "forebay unmount: exit code 0, but the daemon still runs"
        return ""

    def again(self):
        """Unmounts and mounts; returns what went wrong."""
        wrong = self.stop()
        if is_mounted(self.load()["point"]):
            return wrong
        # What the end left for a moment is the unmount's fault, and is not looked for here.
        for _ in range(100):
            if not is_alive(self.load()["pid"]):
                break
            time.sleep(0.05)
        self.start()
        return wrong

    def kill(self):
        """Kills the daemon with SIGKILL; returns its keepers, to wait for."""
        fields = self.load()
        keepers = [os.pidfd_open(pid) for pid in children(fields["pid"])]
        os.kill(fields["pid"], signal.SIGKILL)
        if hasattr(self, "daemon"):
            self.daemon.wait()
        return keepers

    def wait_for(self, keepers):
        """Waits until keepers have ended."""
        for keeper in keepers:
            if not select.select([keeper], [], [], ENDS_WITHIN)[0]:
                raise Failed(f"the keeper has not ended after {ENDS_WITHIN} s: {self.log()}")
            os.close(keeper)

    def detach(self):
        """Takes a mount away whose daemon is dead."""
        point = self.load()["point"]
        while is_mounted(point):
            subprocess.run(["umount", "-l", point], check=True)

    def end(self):
        """After a failure: nothing of this mount may stay."""
        fields = self.load()
        # The parent process, the runner or a judge, may have left without a wait.
        if fields["pid"] and is_alive(fields["pid"]):
            for pid in [fields["pid"], *children(fields["pid"])]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.detach()

    def put_back(self):
        """Puts the records of an intent log into their files, if the source has one."""
        fields = self.load()
        if os.path.exists(os.path.join(fields["source"], ".forebay-log")):
            subprocess.run([fields["program"], "recover", fields["source"]], check=True)

    def log(self):
        """The end of the daemon's log."""
        with open(self.load()["log"], errors="replace") as file:
            return file.read()[-2000:]


class Bindfs:
    """A mount by bindfs, a plain pass-through file system, to compare with."""

    def __init__(self, source, point, prefix=()):
        self.point = point
        os.makedirs(point, exist_ok=True)
        self.daemon = subprocess.Popen([*prefix, "bindfs", "-f", source, point],
                                       stdin=subprocess.DEVNULL)
        self.pid = self.daemon.pid
        end = time.monotonic() + STARTS_WITHIN
        while not is_mounted(point):
            if self.daemon.poll() is not None or time.monotonic() > end:
                self.end()
                raise Failed("bindfs did not mount")
            time.sleep(0.01)

    def stop(self):
        """Unmounts; returns what went wrong, or an empty text."""
        done = subprocess.run(["umount", self.point], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            return f"umount: {done.stdout}"
        self.daemon.wait(ENDS_WITHIN)
        return ""

    def end(self):
        """After a failure: nothing of this mount may stay."""
        self.daemon.kill()
        self.daemon.wait()
        while is_mounted(self.point):
            subprocess.run(["umount", "-l", self.point], check=True)


def program():
    """The program of the mount; a reason if there is none."""
    given = os.environ.get("FOREBAY")
    built = [os.path.join(TOP, "target", kind, "forebay") for kind in ("release", "debug")]
    found = [path for path in ([given] if given else built) if os.path.exists(path)]
    if not found:
        raise Skip("no program forebay; build it with: cargo build --release -p forebay-cli")
    path = max(found, key=os.path.getmtime)
    helped = subprocess.run([path, "mount", "--help"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if helped.returncode:
        raise Skip(f"{path} has no command mount")
    return os.path.abspath(path)


def adopt_orphans():
    """Makes this process the parent of every orphan among its descendants."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def sweep(but):
    """Kills and reaps all children of this process, but for one process and disks."""
    for pid in children(os.getpid()):
        if pid != but and pid not in SERVERS:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


def reap(mount, pid):
    """Whether a process has ended, and was only waited for by nobody yet."""
    if hasattr(mount, "daemon") and mount.daemon.pid == pid:
        try:
            mount.daemon.wait(5)
        except subprocess.TimeoutExpired:
            return False
        return True
    return not is_alive(pid)


def is_mounted(point):
    return os.path.realpath(point) in mount_points()


def mount_points():
    """All mount points, in the order of the mounts."""
    with open("/proc/self/mountinfo", "rb") as file:
        written = [line.split(b" ")[4] for line in file]
    return [os.fsdecode(re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), point))
            for point in written]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid):
    """Process ids of a process's children, those of all its threads."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found.extend(int(word) for word in file.read().split())
    except FileNotFoundError:
        pass
    return found
