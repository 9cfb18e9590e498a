"""ControllerRegistration (key 70): a controller makes its listeners and features known."""

from __future__ import annotations

from headrace.protocol.notation import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Request,
    Response,
    Struct,
    array,
    field,
)


class Listener(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


class Feature(Struct):
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class ControllerRegistrationRequest(Request, key=70, versions="0", flexible="0+"):
    controller_id: int = field(INT32)
    incarnation_id: bytes = field(UUID)
    zk_migration_ready: bool = field(BOOL)
    listeners: list[Listener] = field(array(Listener))
    features: list[Feature] = field(array(Feature))


class ControllerRegistrationResponse(Response, key=70, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
