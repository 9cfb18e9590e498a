"""What a lake table needs of its format: versions with files, columns and numbers, and atomic commits.

Two formats implement it, `delta` and `iceberg`; `table` has the rules that are the same for both. Whoever
commits names the version that the change was decided on. If another commit has come between that would make
the decision wrong, the format raises Conflict, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from headrace.lake.errors import LakeError
from headrace.lake.files import WrittenFile


class Conflict(Exception):
    """Another commit came between; load the table and decide again."""


class StoreFailed(LakeError):
    """The format's library, or the disk, has refused a commit. Whether it was made, the table tells."""


class Change(NamedTuple):
    """One commit: all of it is in the next version, or nothing."""

    added: Collection[WrittenFile] = ()
    removed: Collection[str] = ()  # names of files
    marks: Mapping[str, int] = {}
    has_same_rows: bool = False  # the added files have the rows of the removed ones


class Version(Protocol):
    """One version of a table, and the next ones that can be made from it."""

    @property
    def number(self) -> int:
        """Rises with each commit of files."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns, as files that are added must have them."""
        ...

    @property
    def properties(self) -> Mapping[str, str | None]: ...

    @property
    def files(self) -> dict[str, int]:
        """Names, relative to the table, with the number of bytes."""
        ...

    @property
    def location(self) -> str:
        """What a program that reads the table opens: its directory, or the file of this version."""
        ...

    def row_count(self) -> int: ...

    def mark(self, key: str) -> int | None:
        """Return a number that a commit has stored under this name."""
        ...

    def commit(self, change: Change) -> None: ...

    def change_columns(self, schema: pa.Schema) -> None:
        """Give the table these columns: its own, wider ones, and new ones."""
        ...

    def set_properties(self, properties: Mapping[str, str]) -> None: ...


class Store(Protocol):
    """A table at a path of the local file system, which may not exist yet."""

    @property
    def path(self) -> Path: ...

    @property
    def format(self) -> str:
        """delta or iceberg"""
        ...

    @property
    def needs_columns_first(self) -> bool:
        """Whether files have the ids of their columns, which therefore come before them."""
        ...

    def exists(self) -> bool: ...

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        """Create the table; if another owner was quicker, the table is that one's."""
        ...

    def load(self) -> Version:
        """Read the newest version; raise if there is none, or if it breaks what we promise about tables."""
        ...

    def sync(self, before: int, after: int) -> None:
        """Wait until the commits behind version `before` are on disk."""
        ...

    def forget_history(self, *, keep_s: float) -> None:
        """Forget versions that are older, so that their files are not needed any more."""
        ...
