"""A scratch file system on a loop device, and what is left of it at the end."""

import os
import subprocess

from .judge import Skip
from .programs import CACHE, TOP, need, run

MAKE = {"ext4": ("mkfs.ext4", "e2fsprogs", ["-q", "-F"]),
        "xfs": ("mkfs.xfs", "xfsprogs", ["-q", "-f"])}

# Processes that serve disks that charge.
SERVERS = set()


class Scratch:
    """A mounted file system in a sparse image."""

    def __init__(self, kind, point, bytes_=6 << 30, charges=None):
        program, package, options = MAKE[kind]
        self.kind, self.point, self.device, self.server = kind, point, None, None
        os.makedirs(CACHE, exist_ok=True)
        self.image = os.path.join(CACHE, f"scratch-{os.getpid()}-{kind}.img")
        try:
            if charges:
                self.serve(f"{kind},size={bytes_ >> 30}g,{charges}")
            else:
                with open(self.image, "wb") as file:
                    file.truncate(bytes_)
                found = run("losetup", "--direct-io=on", "--find", "--show", self.image)
                self.device = found.split()[-1]
            run(need(program, package), *options, self.device)
            os.makedirs(point, exist_ok=True)
            run("mount", self.device, point)
            os.chmod(point, 0o755)
        except BaseException:
            self.remove()
            raise

    def serve(self, spec):
        """Has a disk that charges for requests and flushes."""
        path = os.path.join(TOP, "target", "release", "examples", "disk")
        if not os.path.exists(path):
            raise Skip(f"no program {path}; build it with: "
                       "cargo build --release -p forebay-lab --example disk")
        self.server = subprocess.Popen([path, spec, "--bare"], cwd=CACHE, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        SERVERS.add(self.server.pid)
        self.device = self.server.stdout.readline().strip()
        if not self.device:
            raise Skip(f"{path} {spec} served no disk")

    def remount(self):
        """Unmounts and mounts it again: no page of it stays in memory."""
        run("umount", self.point)
        run("mount", self.device, self.point)

    def check(self):
        """Unmounts it and checks it; returns what is wrong, or an empty text."""
        run("umount", self.point)
        if self.kind == "xfs":
            command = [need("xfs_repair", "xfsprogs"), "-n", self.device]
        else:
            command = [need("e2fsck", "e2fsprogs"), "-f", "-n", self.device]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        return f"{command[0]}: exit code {done.returncode}: {done.stdout}" \
            if done.returncode else ""

    def remove(self):
        """Removes everything; may be called at any time."""
        subprocess.run(["umount", "-l", self.point], stderr=subprocess.DEVNULL)
        if self.server:
            self.server.stdin.close()
            self.server.wait()
            SERVERS.discard(self.server.pid)
            self.server = self.device = None
        if self.device:
            subprocess.run(["losetup", "--detach", self.device], stderr=subprocess.DEVNULL)
            self.device = None
        if os.path.exists(self.image):
            os.unlink(self.image)
