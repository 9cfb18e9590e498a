"""ListSinks (key 30013, Headrace's own): the sinks that a broker coordinates."""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, INT64, STRING, Request, Response, Struct, array, field


class ListSinksRequest(Request, key=30013, versions="0", flexible="0+"):
    pass


class ListedSink(Struct):
    app_id: str = field(STRING)
    query_id: str = field(STRING)
    run_id: str = field(STRING)
    committed_batch_id: int = field(INT64)
    batch_id: int = field(INT64)
    open_attempts: int = field(INT32)
    ending_attempts: int = field(INT32)
    producer_ids: list[int] = field(array(INT64))  # of these attempts
    updated_ms: int = field(INT64)


class ListSinksResponse(Response, key=30013, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    sinks: list[ListedSink] = field(array(ListedSink))
