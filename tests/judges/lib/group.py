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

    def read(self, *names):
        """The text of the first of these files that the group has: of version 1, of version 2."""
        for name in names:
            try:
                with open(os.path.join(self.path, name)) as file:
                    return file.read()
            except FileNotFoundError:
                pass
        raise FileNotFoundError(f"{self.path} has none of {', '.join(names)}")

    def used(self):
        """Bytes of the group now, with page cache."""
        return int(self.read("memory.usage_in_bytes", "memory.current"))

    def kills(self):
        """Processes of the group that were killed because memory ran out."""
        lines = self.read("memory.oom_control", "memory.events").splitlines()
        return int(dict(line.split() for line in lines).get("oom_kill", 0))

    def remove(self):
        for _ in range(100):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.05)
