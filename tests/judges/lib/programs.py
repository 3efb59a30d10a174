"""Programs that judges run: found, or installed when a judge needs them."""

import fcntl
import os
import shutil
import subprocess
import threading

from .judge import Failed, Skip

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
# Programs of crates.io, and the images of scratch file systems.
CACHE = os.environ.get("JUDGES_CACHE", os.path.join(TOP, "target", "judges"))


def need(program, package, places=()):
    """Returns the path of a program, which a Debian package has."""
    found = find(program, places)
    if found:
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        with Lock("apt"):
            # Runlevel 1: a package that has a service does not start it.
            environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
            for command in (install, ["apt-get", "update", "-qq"], install):
                subprocess.run(command, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                found = find(program, places)
                if found:
                    return found
    raise missing(f"no program {program}; install the package {package}")


def find(program, places=()):
    path = os.pathsep.join([*places, os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return shutil.which(program, path=path)


def of_crate(crate, version):
    """Returns the path of a crate's program; builds it into the cache if it is not there."""
    program = os.path.join(CACHE, "bin", crate)
    stamp = os.path.join(CACHE, f"{crate}-{version}")
    with Lock(crate):
        if os.path.exists(program) and os.path.exists(stamp):
            return program
        if not shutil.which("cargo"):
            raise missing(f"no cargo, which builds {crate} {version}")
        command = ["cargo", "install", "--quiet", "--locked", "--force", "--root", CACHE,
                   "--target-dir", os.path.join(CACHE, "build"), f"{crate}@{version}"]
        # Elsewhere than in this project, whose settings of cargo do not matter to it.
        built = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if built.returncode:
            raise missing(f"cargo install {crate}@{version} failed: {built.stdout[-300:]}")
        open(stamp, "w").close()
    return program


def missing(why):
    reason = Skip(why)
    reason.is_missing = True
    return reason


class Lock:
    """A lock between processes, by name."""

    def __init__(self, name):
        os.makedirs(CACHE, exist_ok=True)
        self.path = os.path.join(CACHE, f"{name}.lock")

    def __enter__(self):
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        self.file.close()


def run(*command, **options):
    """Runs a command; raises `Failed` with its output if it fails. Returns the output."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "timeout": 900,
               "stderr": subprocess.STDOUT, "text": True, "errors": "replace", **options}
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, **options)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}: no end after {options['timeout']} s") from None
    if done.returncode:
        printed = done.stdout or ""
        if len(printed) > 600:
            printed = f"{printed[:300]} ... {printed[-300:]}"
        raise Failed(f"{os.path.basename(command[0])}: exit code {done.returncode}: {printed}; "
                     f"the command: {' '.join(command)}")
    return done.stdout


def in_parallel(function, arguments):
    """Calls a function in one thread per argument; raises the first failure."""
    failures = []

    def one(argument):
        try:
            function(argument)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
