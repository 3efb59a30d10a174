class PoisonedError(OSError):
    """A flush failed, so data since the last successful sync may be lost."""

class ShutdownError(OSError):
    """The engine has been shut down."""

class ForkedError(OSError):
    """The object belongs to the parent of this process."""

class CommitError(OSError):
    """A batch could not be committed."""

    errors: list[Exception]
    targets: list[tuple[str, str]]

class SyncManyError(OSError):
    """Files that may not be durable."""

    errors: list[tuple[int, Exception]]

class Engine:
    def __new__(cls, **options: object) -> Engine: ...
    def stats(self) -> dict[str, int]: ...
    def describe(self) -> str: ...
    def late_errors(self) -> list[Exception]: ...
