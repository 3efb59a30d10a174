"""A judge's command line and its results.

A judge is called as `NAME DIRECTORY [--long]`. It prints one line per test:

    ok NAME
    not ok NAME: REASON
    skipped: REASON          the whole judge cannot run here
    # anything else

The runner compares these lines by name. Names are the same in every place and on every run.
"""

import os
import shutil
import sys
import traceback


class Skip(Exception):
    """The judge cannot run here; the text says why."""


class Failed(Exception):
    """A test failed; the text says why."""


class Judge:
    """Prints results and counts failures."""

    def __init__(self, directory, is_long):
        self.directory = directory
        self.is_long = is_long
        self.failed = 0

    def path(self, *parts):
        """Returns a path below the judge's directory."""
        return os.path.join(self.directory, *parts)

    def ok(self, name):
        print(f"ok {name}", flush=True)

    def not_ok(self, name, why):
        self.failed += 1
        print(f"not ok {name}: {one_line(why)}", flush=True)

    def check(self, name, wrong):
        """Reports a test: `wrong` says what is wrong, and is empty if nothing is."""
        assert ": " not in name, name  # it separates name and reason
        if wrong:
            self.not_ok(name, wrong)
        else:
            self.ok(name)
        return not wrong

    def test(self, name, function, *arguments):
        """Runs one test. Its errors are its result, and the judge goes on."""
        try:
            wrong = function(*arguments)
        except Failed as error:
            wrong = str(error)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        return self.check(name, wrong)

    def note(self, text):
        print(f"# {one_line(text)}", flush=True)


def one_line(text):
    """The text on one line, and not longer than a reader takes in."""
    text = " | ".join(line.strip() for line in str(text).splitlines() if line.strip())
    return text if len(text) <= 1000 else f"{text[:500]} ... {text[-490:]}"


def main(function, usage):
    """Parses the command line, prepares the directory, and runs a judge."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    if "--help" in options or len(words) != 1 or set(options) - {"--long"}:
        print(usage.strip())
        sys.exit(0 if "--help" in options else 2)
    directory = os.path.join(os.path.abspath(words[0]), os.path.basename(sys.argv[0]))
    judge = Judge(directory, "--long" in options)
    try:
        if os.path.exists(directory):
            shutil.rmtree(directory)
        os.makedirs(directory)
        os.chmod(directory, 0o755)
        function(judge)
    except Skip as reason:
        print(f"skipped: {reason}", flush=True)
        # In CI, as root, a program can be installed: it must be there.
        sys.exit(1 if must_run() and getattr(reason, "is_missing", False) else 0)
    except Exception as error:  # the judge's own failure is a failed test, too
        judge.not_ok("the judge itself", f"{type(error).__name__}: {error}")
        traceback.print_exc()
    if os.environ.get("JUDGES_KEEP") != "1":
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(1 if judge.failed else 0)


def must_run():
    """Whether a missing program is a failure."""
    return os.environ.get("CI") == "true" and os.geteuid() == 0
