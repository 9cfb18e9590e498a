"""Requests and answers of Apache Kafka 4.3.1 from the golden frames, as messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import decode_request_header

FRAMES = Path(__file__).parents[1] / "unit" / "golden" / "frames"
CORRELATION_ID_BYTES = 4


def golden(api: str) -> Iterator[tuple[int, Any, Any]]:
    """Version, request and answer, in the order in which they were captured."""
    lines = [line.split() for line in (FRAMES / f"{api}.txt").read_text().splitlines() if line[0] != "#"]
    for asked, told in zip(lines[::2], lines[1::2], strict=True):
        assert (asked[0], asked[1], told[1]) == (told[0], "request", "response")
        frame = bytes.fromhex(asked[2])
        key, version, _, _, position = decode_request_header(frame)
        codec = response_codec(key, version)
        answer = codec.decode(bytes.fromhex(told[2]), CORRELATION_ID_BYTES + codec.header_version)
        yield version, request_codec(key, version).decode(frame, position), answer
