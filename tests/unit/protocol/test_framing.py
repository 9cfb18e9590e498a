"""Headers and sizes, in both directions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace.protocol import framing
from headrace.protocol.api import ApiKey, request_codec, response_codec
from headrace.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion


def header(api_key: int, version: int, tail: bytes) -> bytes:
    return api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7" + tail


@pytest.mark.parametrize(
    ("version", "tail", "client_id", "position"),
    [
        (8, b"\0\2me", "me", 12),
        (8, b"\xff\xff", None, 10),
        (9, b"\0\2me\0", "me", 13),
        (9, b"\xff\xff\1\5\2zz", None, 15),
        (8, b"\0\1\xff", "�", 11),
    ],
    ids=["v1", "v1-null", "v2", "v2-tags", "not-utf8"],
)
def test_request_header(version: int, tail: bytes, client_id: str | None, position: int) -> None:
    frame = header(ApiKey.METADATA, version, tail) + b"body"
    for buffer in (frame, memoryview(frame)):
        assert framing.decode_request_header(buffer) == (ApiKey.METADATA, version, 7, client_id, position)


def test_api_versions_header_is_read_in_versions_of_the_future() -> None:
    frame = header(ApiKey.API_VERSIONS, 99, b"\xff\xff\0")
    assert framing.decode_request_header(frame)[:3] == (18, 99, 7)


@pytest.mark.parametrize(
    "frame", [header(4, 0, b"\xff\xff"), header(999, 0, b"\xff\xff"), header(3, -1, b"\xff\xff")]
)
def test_header_of_an_unknown_api_is_unsupported(frame: bytes) -> None:
    with pytest.raises(UnsupportedVersion):
        framing.decode_request_header(frame)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        header(3, 8, b"\0"),
        header(3, 8, b"\x7f\xffme"),
        header(3, 9, b"\xff\xff"),
        header(3, 9, b"\xff\xff\xff\xff\xff\xff\xff"),
    ],
    ids=["empty", "cut", "client-id", "no-tags", "tags"],
)
def test_broken_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        framing.decode_request_header(frame)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("client_id", [None, "", "cliënt"])
def test_request_frame_is_read_back(version: int, client_id: str | None) -> None:
    parts = framing.request_frame(ApiKey.METADATA, version, -5, client_id, [b"bo", b"dy"])
    frame = b"".join(parts)  # type: ignore[arg-type]
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    *told, position = framing.decode_request_header(frame[4:])
    assert told == [ApiKey.METADATA, version, -5, client_id]
    assert frame[4 + position :] == b"body"


def test_request_header_that_does_not_fit() -> None:
    with pytest.raises(UnencodableMessage):
        framing.encode_request_header(ApiKey.METADATA, 9, 2**31, None, 0)
    with pytest.raises(UnsupportedVersion):
        framing.encode_request_header(4, 0, 1, None, 0)


@dataclass
class Span:
    size: int


def test_response_size_counts_parts_that_are_not_read_yet() -> None:
    span = Span(100)
    first, *rest = framing.response_frame(9, 1, [b"abc", span, memoryview(b"de")])
    assert first == (4 + 1 + 105).to_bytes(4, "big") + b"\0\0\0\x09\0"
    assert rest == [b"abc", span, b"de"]


@pytest.mark.parametrize("header_version", [0, 1])
def test_response_is_read_back(header_version: int) -> None:
    frame = framing.response_bytes(-3, header_version, b"body")
    assert frame == b"".join(framing.response_frame(-3, header_version, [b"body"]))  # type: ignore[arg-type]
    assert framing.decode_response_header(frame[4:], header_version) == (-3, 4 + header_version)


def test_response_header_tags_are_skipped() -> None:
    assert framing.decode_response_header(b"\0\0\0\1\1\4\2zzbody", 1) == (1, 9)
    for broken in (b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1\4\x0fzz"):
        with pytest.raises(MalformedMessage):
            framing.decode_response_header(broken, 1)


def test_header_versions() -> None:
    """The ApiVersions response header has no tag byte, ever (KIP-511)."""
    assert response_codec(ApiKey.API_VERSIONS, 4).header_version == 0
    assert request_codec(ApiKey.API_VERSIONS, 4).header_version == 2
    assert response_codec(ApiKey.METADATA, 9).header_version == 1
    assert response_codec(ApiKey.METADATA, 8).header_version == 0
    assert request_codec(ApiKey.METADATA, 8).header_version == 1
