"""Local files for pyiceberg's metadata, which are on disk when they are closed.

The catalog names a file only after that, so a host that loses its power has no table whose metadata is
missing. pyiceberg's own file access does not wait for the disk.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import IO

from pyiceberg.io import FileIO, InputFile, OutputFile

from headrace.lake.files import sync

SCHEME = "file://"


def location_of(path: Path) -> str:
    return f"{SCHEME}{path.absolute()}"


def path_of(location: str) -> Path:
    return Path(location.removeprefix(SCHEME).removeprefix("file:"))


class LocalFileIO(FileIO):
    def new_input(self, location: str) -> LocalInput:
        return LocalInput(location)

    def new_output(self, location: str) -> LocalOutput:
        return LocalOutput(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path_of(location if isinstance(location, str) else location.location).unlink()


class LocalInput(InputFile):
    def __len__(self) -> int:
        return path_of(self.location).stat().st_size

    def exists(self) -> bool:
        return path_of(self.location).exists()

    def open(self, seekable: bool = True) -> IO[bytes]:
        return path_of(self.location).open("rb")


class LocalOutput(OutputFile):
    def __len__(self) -> int:
        return path_of(self.location).stat().st_size

    def exists(self) -> bool:
        return path_of(self.location).exists()

    def to_input_file(self) -> LocalInput:
        return LocalInput(self.location)

    def create(self, overwrite: bool = False) -> SyncedFile:
        path = path_of(self.location)
        path.parent.mkdir(parents=True, exist_ok=True)
        return SyncedFile(path, "wb" if overwrite else "xb")


class SyncedFile:
    """A file that is written once."""

    def __init__(self, path: Path, mode: str) -> None:
        self._path = path
        self._file = path.open(mode)

    def write(self, data: bytes) -> int:
        return int(self._file.write(data))

    def tell(self) -> int:
        return self._file.tell()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            sync(self._path.parent)

    def __enter__(self) -> SyncedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
