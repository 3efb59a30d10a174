"""A PostgreSQL server in a directory, and clients that log what it acknowledged."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from .judge import Failed
from .mounts import adopt_orphans, children
from .programs import need, run

SETTINGS = """
listen_addresses = ''
fsync = on
full_page_writes = on
shared_buffers = 16MB
max_wal_size = 64MB
min_wal_size = 32MB
checkpoint_timeout = 30s
checkpoint_completion_target = 0.5
wal_compression = off
log_checkpoints = off
restart_after_crash = off
"""


class Server:
    """Runs as the user postgres if this process is root."""

    def __init__(self, data):
        self.places = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
        need("initdb", "postgresql", self.places)
        self.places = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
        self.data = data
        adopt_orphans()
        self.outside = tempfile.mkdtemp(prefix="judges-pg-")
        os.mkdir(data)
        self.user = None
        if os.geteuid() == 0:
            self.user = "postgres"
            entry = pwd.getpwnam(self.user)
            for path in (data, self.outside):
                os.chown(path, entry.pw_uid, entry.pw_gid)
        os.chmod(data, 0o700)
        self.environment = {"PATH": os.environ["PATH"], "HOME": self.outside, "LC_ALL": "C",
                            "PGHOST": self.outside, "PGUSER": "postgres", "TZ": "UTC",
                            "PGDATABASE": "postgres", "PGOPTIONS": "-c client_min_messages=error"}

    def options(self):
        return {"user": self.user, "group": self.user, "extra_groups": []} if self.user else {}

    def path_of(self, program):
        return need(program, "postgresql", self.places)

    def call(self, program, *words, **options):
        return run(self.path_of(program), *words, env=self.environment, cwd=self.outside,
                   **self.options(), **options)

    def query(self, text):
        words = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", text]
        return self.call("psql", *words).strip()

    def create(self, settings=""):
        self.call("initdb", "-D", self.data, "--data-checksums", "--auth=trust",
                  "--username=postgres", "--encoding=UTF8", "--no-locale")
        with open(os.path.join(self.data, "postgresql.conf"), "a") as file:
            file.write(SETTINGS + settings)
            file.write(f"unix_socket_directories = '{self.outside}'\n")

    def start(self):
        log = os.path.join(self.outside, "log")
        try:
            # Its output is a file, because the server inherits it.
            with open(os.path.join(self.outside, "pg_ctl"), "w") as output:
                self.call("pg_ctl", "start", "-w", "-t", 120, "-D", self.data, "-l", log,
                          stdout=output)
        except Failed as error:
            raise Failed(f"{error}; {self.log()}") from None

    def stop(self):
        self.call("pg_ctl", "stop", "-w", "-t", 120, "-m", "fast", "-D", self.data)

    def pid(self):
        with open(os.path.join(self.outside, ".s.PGSQL.5432.lock")) as file:
            return int(file.readline())

    def kill(self):
        """Kills the server and its processes with SIGKILL; returns when all have ended."""
        pid = self.pid()
        processes = [pid]
        os.kill(pid, signal.SIGSTOP)
        processes += children(pid)
        for one in processes:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass
        end = time.monotonic() + 60
        while any(not ended(one) for one in processes):
            if time.monotonic() > end:
                raise Failed("a process of the server does not end after SIGKILL")
            time.sleep(0.02)

    def log(self):
        """The last errors of the server's log."""
        with open(os.path.join(self.outside, "log"), errors="replace") as file:
            lines = [line for line in file.read().splitlines()
                     if "PANIC" in line or "FATAL" in line or "ERROR" in line]
        return " | ".join(lines[-4:])

    def end(self):
        try:
            self.kill()
        except (OSError, ValueError, Failed):
            pass
        shutil.rmtree(self.outside, ignore_errors=True)


def ended(pid):
    """Whether a process has ended; reaps it, because a server's lock file names a process id."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    return not os.path.exists(f"/proc/{pid}")


class Client(threading.Thread):
    """Inserts numbers in transactions of their own, and remembers those that were acknowledged."""

    def __init__(self, server, who, first):
        super().__init__()
        self.who, self.first, self.acknowledged = who, first, []
        command = [server.path_of("psql"), "-X", "-q", "-A", "-t"]
        self.psql = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, text=True, cwd=server.outside,
                                     env=server.environment, **server.options())
        self.start()

    def run(self):
        n = self.first
        try:
            while True:
                size = n * 7919 % 3000
                self.psql.stdin.write("INSERT INTO acknowledged SELECT "
                                      f"{self.who}, {n}, repeat('{n:08}', {size // 8}) "
                                      "RETURNING n;\n")
                self.psql.stdin.flush()
                if self.psql.stdout.readline().strip() != str(n):
                    break
                self.acknowledged.append(n)
                n += 1
        except BrokenPipeError:
            pass
        self.psql.kill()
        self.psql.wait()
