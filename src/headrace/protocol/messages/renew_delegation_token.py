"""RenewDelegationToken (key 39): a token lives longer."""

from __future__ import annotations

from headrace.protocol.notation import BYTES, INT16, INT32, INT64, Request, Response, field


class RenewDelegationTokenRequest(Request, key=39, versions="1-2", flexible="2+"):
    hmac: bytes = field(BYTES)
    renew_period_ms: int = field(INT64)


class RenewDelegationTokenResponse(Response, key=39, versions="1-2", flexible="2+"):
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
