"""The door of the node: what is no request, or none that is served, costs its sender the connection."""

import struct

import pytest

from harness.desk import Desk
from headrace.base.limits import FRAME_WITHOUT_RECORDS_BYTES_MAX
from headrace.node.routes import SERVED
from headrace.protocol.api import response_codec
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.metadata import MetadataRequest


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0" * 7,
        struct.pack(">hhih", 3, 1, 1, 30_000),  # a client id longer than the frame
        struct.pack(">hhih", 3, 1, 1, -1),  # a body that is not there
        struct.pack(">hhih", 3, 99, 1, -1),  # a version that does not exist
        struct.pack(">hhih", 52, 0, 1, -1) + b"\0" * 30,  # an API that is not for clients
        struct.pack(">hhih", 77, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 0, 2, 1, -1) + b"\0" * 30,  # Produce 0-2 is advertised and not served
        struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1),  # two billion topics
        struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\xff" * 12,  # an endless varint
    ],
)
def test_garbage_closes_the_connection_and_nothing_else(frame: bytes) -> None:
    desk = Desk()
    bad, good = desk.connect(), desk.connect()
    desk.send_frame(bad, frame)
    assert bad.id in desk.closed
    assert desk.receive(bad) is None
    assert desk.ask(MetadataRequest(topics=[]), 1, good).brokers[0].node_id == 1


def test_an_unknown_version_of_api_versions_is_told_the_known_ones() -> None:
    desk = Desk()
    connection = desk.connect()
    desk.send_frame(connection, struct.pack(">hhih", 18, 127, 42, -1) + b"\0")
    (answer,) = desk.answers[connection.id]
    assert struct.unpack(">i", answer[4:8]) == (42,)
    body = response_codec(18, 0).decode(answer[8:], 0)
    assert body.error_code == 35
    assert [(key.api_key, key.min_version, key.max_version) for key in body.api_keys] == [(18, 0, 4)]


def test_only_what_is_served_is_advertised() -> None:
    answer = Desk().ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    assert {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys} == {
        key: (first, last) for key, (first, last) in SERVED.items()
    }


def test_a_long_request_without_records_is_not_decoded() -> None:
    desk = Desk()
    connection = desk.connect()
    count = FRAME_WITHOUT_RECORDS_BYTES_MAX // 2
    desk.send_frame(connection, struct.pack(">hhihi", 3, 1, 1, -1, count) + b"\0\0" * count)
    assert "too many" in desk.closed[connection.id]
