"""BrokerHeartbeat (key 63): a broker stays alive, asks to be unfenced or to shut down."""

from __future__ import annotations

from headrace.protocol.notation import BOOL, INT16, INT32, INT64, UUID, Request, Response, array, field


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+"):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    current_metadata_offset: int = field(INT64)
    want_fence: bool = field(BOOL)
    want_shut_down: bool = field(BOOL)
    offline_log_dirs: list[bytes] = field(array(UUID), "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = field(array(UUID), "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    is_caught_up: bool = field(BOOL)
    is_fenced: bool = field(BOOL, default=True)
    should_shut_down: bool = field(BOOL)
