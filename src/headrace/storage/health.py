"""Whether a log directory can still be trusted. One per directory, shared by its logs.

After an I/O error nobody knows what the disk holds, and a later fsync that succeeds proves nothing: the error
stays until the process starts anew and reads everything again.
"""

from headrace.storage.errors import DiskFull, LogOffline, StorageError, is_full


class Health:
    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: OSError | None = None  # the first one, for ever

    def offline(self) -> LogOffline:
        return LogOffline(f"the log directory is offline: {self.error}")

    def met(self, error: OSError) -> StorageError:
        """What a failed call to the disk means for whoever asked."""
        if is_full(error):
            return DiskFull(str(error))
        if self.error is None:
            self.error = error
        return self.offline()
