"""AppendAt (key 30002, Headrace's own): append a batch only where the log ends at an expected offset.

Several programs that decide from what they have read from one partition may write to it with this: a decision
counts only if nobody has written in the meantime. Kafka has no such request.
"""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, INT64, RECORDS, UUID, Request, Response, field
from headrace.protocol.parts import Records


class AppendAtRequest(Request, key=30002, versions="0", flexible="0+"):
    topic_id: bytes = field(UUID)
    partition: int = field(INT32)
    expected_offset: int = field(INT64)  # the first record of the batch gets it
    timeout_ms: int = field(INT32)  # until all in-sync replicas have the batch
    records: Records | None = field(RECORDS, nullable="0+")


class AppendAtResponse(Response, key=30002, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)  # INVALID_UPDATE_VERSION: the log ends elsewhere
