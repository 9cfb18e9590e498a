"""Waiting for streaming queries: for their end, or for what they write while they run."""

from __future__ import annotations

from pyspark.sql.streaming import StreamingQuery

from harness.wait import WAIT_S, Patience


def await_end(query: StreamingQuery, timeout_s: float = WAIT_S) -> None:
    """Raises what the query raised; fails when it still runs after so many seconds of a machine with time."""
    patience = Patience(timeout_s)
    while not query.awaitTermination(1):
        assert not patience.is_over, f"still running after {timeout_s} s: {query.status} {query.lastProgress}"
    check_runs(query)  # one that fails just as a wait times out looks like one that ended


def check_runs(query: StreamingQuery) -> None:
    """Raises what ended the query: nobody should wait for a query that is over."""
    failure = query.exception()
    if failure is not None:
        raise failure
