"""Cache of open files for all logs of a node. Files of sealed segments and indexes are opened when they are
needed, and the least recently used are dropped. The active segment keeps its own file.

Dropping a file removes the reference and does not close it: a `Span` that is being sent may still use the
file, which closes itself with its last reference.
"""

from headrace.storage.disk import Disk, File

# Enough for every index a busy node touches, and far below the usual limit of 1,024 descriptors per process
# when sockets and active segments are counted too.
OPEN_FILES_MAX = 512


class OpenFiles:
    """Least recently used first out. A dict keeps insertion order, and a used file is inserted again."""

    __slots__ = ("_files", "files_max")

    def __init__(self, files_max: int = OPEN_FILES_MAX) -> None:
        assert files_max > 0
        self.files_max = files_max
        self._files: dict[tuple[Disk, str], File] = {}

    def __len__(self) -> int:
        return len(self._files)

    def file(self, disk: Disk, path: str, *, create: bool = False) -> File:
        key = (disk, path)
        file = self._files.pop(key, None)
        if file is None:
            file = disk.open(path, create=create)
            while len(self._files) >= self.files_max:
                del self._files[next(iter(self._files))]
        self._files[key] = file
        return file

    def forget(self, disk: Disk, path: str) -> None:
        """The name will mean another file, or none."""
        self._files.pop((disk, path), None)

    def forget_directory(self, disk: Disk, directory: str) -> None:
        prefix = directory + "/"
        for key in [key for key in self._files if key[0] is disk and key[1].startswith(prefix)]:
            del self._files[key]
