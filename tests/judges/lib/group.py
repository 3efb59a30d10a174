"""A memory control group, of version 1 or 2."""

import os
import time

from .judge import Skip


class Group:
    def __init__(self, name, bytes_):
        one, two = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
        if os.path.exists(os.path.join(one, "memory.limit_in_bytes")):
            self.path, limit = os.path.join(one, name), "memory.limit_in_bytes"
        elif os.path.exists(os.path.join(two, "cgroup.controllers")):
            self.path, limit = os.path.join(two, name), "memory.max"
            with open(os.path.join(two, "cgroup.subtree_control"), "w") as file:
                file.write("+memory")
        else:
            raise Skip("no memory control group in /sys/fs/cgroup")
        os.mkdir(self.path)
        with open(os.path.join(self.path, limit), "w") as file:
            file.write(str(bytes_))

    def prefix(self):
        """A command that starts another one in the group."""
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs; exec "$@"', "sh"]

    def used(self):
        """Bytes of the group now, with page cache."""
        for name in ("memory.usage_in_bytes", "memory.current"):
            try:
                with open(os.path.join(self.path, name)) as file:
                    return int(file.read())
            except FileNotFoundError:
                pass
        raise FileNotFoundError(f"{self.path} does not count its memory")

    def kills(self):
        """Processes of the group that were killed because memory ran out."""
        for name in ("memory.oom_control", "memory.events"):
            try:
                with open(os.path.join(self.path, name)) as file:
                    fields = dict(line.split() for line in file)
                return int(fields.get("oom_kill", 0))
            except FileNotFoundError:
                pass
        return 0

    def remove(self):
        for _ in range(100):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.05)
