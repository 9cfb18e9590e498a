"""Commits of lake tables that fail, in either format: before they are made, or after."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

CONFLICTS: dict[str, Exception] = {
    "delta": CommitFailedError("conflict"),
    "iceberg": CommitFailedException("conflict"),
}
LOST_ANSWERS: dict[str, Exception] = {
    "delta": DeltaError("no answer"),
    "iceberg": OperationalError("no answer", None, Exception("no answer")),
}
_CALLS: dict[str, tuple[type, str]] = {
    "delta": (DeltaTable, "create_write_transaction"),
    "iceberg": (SqlCatalog, "commit_table"),
}


def failing_commits(
    monkeypatch: pytest.MonkeyPatch, format: str, error: Exception, *, times: int, is_made: bool
) -> list[Exception]:
    """Let commits fail so often; return the errors while they come."""
    raised: list[Exception] = []
    kind, name = _CALLS[format]
    commit = getattr(kind, name)

    def fail(self: Any, *given: Any, **named: Any) -> Any:
        if len(raised) >= times:
            return commit(self, *given, **named)
        raised.append(error)
        if is_made:
            commit(self, *given, **named)
        raise error

    monkeypatch.setattr(kind, name, fail)
    return raised
