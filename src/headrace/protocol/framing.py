"""Frames: four bytes of size, a header, a body. This module reads and writes headers; connections cut frames.

The request header keeps its client id as an int16-sized string even where the body is compact, so that a
broker can answer a client that is newer than itself.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as struct_error
from typing import Any

from headrace.protocol.api import FLEXIBLE_FROM
from headrace.protocol.chunked_message import ChunkedMessage
from headrace.protocol.compiler import Codec
from headrace.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from headrace.protocol.parts import BUFFERS, Part, part_size, total_size
from headrace.protocol.varint import skip_tags

_REQUEST_HEADER = Layout(">hhih")
_read_request_header = _REQUEST_HEADER.unpack_from
_RESPONSE_HEADERS = (Layout(">ii").pack, Layout(">iix").pack)
_REQUEST_PREFIX = Layout(">ihhih")

# Kafka's order: api key, api version, correlation id, client id, and where the body begins in the frame.
RequestHeader = tuple[int, int, int, str | None, int]


def decode_request_header(frame: bytes | memoryview) -> RequestHeader:
    """Reads the header of a request whose frame begins behind the size.

    The version need not be one that is served (ApiVersions answers any version), but an unknown key leaves
    the shape of the header open: UnsupportedVersion.
    """
    try:
        api_key, version, correlation_id, length = _read_request_header(frame)
    except struct_error as fault:
        raise MalformedMessage("a frame ends inside its header") from fault
    flexible_from = FLEXIBLE_FROM.get(api_key)
    if flexible_from is None or version < 0:
        raise UnsupportedVersion(api_key, version)
    position = 10
    client_id = None
    if length >= 0:
        position += length
        if position > len(frame):
            raise MalformedMessage("the client id is longer than the frame")
        # a label and nothing more: Kafka does not refuse one that is not UTF-8 either
        client_id = str(frame[10:position], "utf-8", "replace")
    if version >= flexible_from:
        try:
            tags = frame[position]
        except IndexError:
            raise MalformedMessage("a frame ends inside its header") from None
        position += 1
        if tags:
            position = skip_tags(frame, position, tags)
    return api_key, version, correlation_id, client_id, position


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body_size: int
) -> bytes:
    """The size and header that go before a request's body."""
    flexible_from = FLEXIBLE_FROM.get(api_key)
    if flexible_from is None:
        raise UnsupportedVersion(api_key, version)
    name = b"" if client_id is None else client_id.encode()
    tags = b"\0" if version >= flexible_from else b""
    size = 10 + len(name) + len(tags) + body_size
    length = -1 if client_id is None else len(name)
    try:
        return _REQUEST_PREFIX.pack(size, api_key, version, correlation_id, length) + name + tags
    except struct_error as fault:
        raise UnencodableMessage(f"request header: {fault}") from fault


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, parts: list[Part]
) -> list[Part]:
    """A whole request as parts: size and header first, then the body's parts as they are."""
    header = encode_request_header(api_key, version, correlation_id, client_id, total_size(parts))
    return [header, *parts]


def response_frame(correlation_id: int, header_version: int, parts: list[Part]) -> list[Part]:
    """A whole response as parts: size and header first, then the body's parts as they are.

    `header_version` is the response codec's.
    """
    size = 4 + header_version
    for part in parts:
        size += len(part) if type(part) in BUFFERS else part_size(part)  # type: ignore[arg-type]
    return [_RESPONSE_HEADERS[header_version](size, correlation_id), *parts]


def answer_frame(codec: Codec[Any], correlation_id: int, reply: Any) -> list[Any]:
    """The frame of a reply, whose codec this is; every `records` value in it is a part of its own."""
    parts = reply.encoded() if type(reply) is ChunkedMessage else codec.encode_parts(reply)
    return response_frame(correlation_id, codec.header_version, parts)


def response_bytes(correlation_id: int, header_version: int, body: bytes) -> bytes:
    """The same in one piece, for a body that is all in memory and small."""
    return _RESPONSE_HEADERS[header_version](4 + header_version + len(body), correlation_id) + body


def decode_response_header(frame: bytes | memoryview, header_version: int) -> tuple[int, int]:
    """Reads a response header, behind the size: the correlation id and where the body begins."""
    if len(frame) < 4 + header_version:
        raise MalformedMessage("a frame ends inside its header")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    if header_version == 0:
        return correlation_id, 4
    tags = frame[4]
    return correlation_id, skip_tags(frame, 5, tags) if tags else 5
