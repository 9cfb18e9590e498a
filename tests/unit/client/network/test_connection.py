"""The connection machine against a scripted peer: negotiation, order, framing, time, and peers that
misbehave.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.time import NEVER, Instant
from headrace.client.errors import BadResponse, ClientError, ConnectionLost, TimedOut, UnsupportedByBroker
from headrace.client.network.connection import SHARED_BUFFER_BYTES, Connection
from headrace.protocol.api import request_codec
from headrace.protocol.framing import decode_request_header
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.protocol.messages.fetch import FetchRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from headrace.protocol.messages.produce import ProduceRequest

Ready = Callable[..., Connection]
DEADLINE = Instant(10.0)
TLS_ALERT = bytes.fromhex("15030300020228")


def new_connection(**options: Any) -> Connection:
    return Connection(client_id="test", software_version="1.0", **options)


def requests_in(parts: list[Any]) -> list[tuple[int, int, int, str | None, Any]]:
    """(api key, version, correlation id, client id, body) of each frame in the output."""
    data = b"".join(bytes(part) for part in parts)
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        frame, data = data[4 : 4 + size], data[4 + size :]
        key, version, number, client_id, at = decode_request_header(frame)
        found.append((key, version, number, client_id, request_codec(key, version).decode(frame, at)))
    return found


def metadata_answer(brokers: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=i, host="h" * 200, port=1) for i in range(brokers)]
    )


class TestNegotiation:
    def test_the_first_request_asks_for_versions(self) -> None:
        connection = new_connection()
        connection.begin(DEADLINE)
        ((key, version, number, client_id, body),) = requests_in(connection.take_output())
        assert (key, version, number, client_id) == (18, 4, 0, "test")
        assert (body.client_software_name, body.client_software_version) == ("headrace", "1.0")
        assert connection.take_output() == []

    def test_the_highest_version_that_both_speak_is_used(self, ready: Ready) -> None:
        connection = ready(api_3=(0, 9))
        connection.send(MetadataRequest(), DEADLINE)
        assert [(key, version) for key, version, *_ in requests_in(connection.take_output())] == [(3, 9)]

    def test_the_caller_may_lower_the_version(self, ready: Ready) -> None:
        connection = ready()
        assert connection.version_for(MetadataRequest, 5) == 5

    @pytest.mark.parametrize("offered", [(14, 20), (0, -1)])
    def test_no_common_version_is_an_error_of_that_request(
        self, ready: Ready, offered: tuple[int, int]
    ) -> None:
        connection = ready(api_3=offered)
        with pytest.raises(UnsupportedByBroker, match="Metadata"):
            connection.send(MetadataRequest(), DEADLINE)
        assert connection.is_ready

    def test_an_api_that_is_not_offered(self, ready: Ready) -> None:
        with pytest.raises(UnsupportedByBroker, match="does not support Fetch"):
            ready().send(FetchRequest(), DEADLINE)

    def test_a_controller_that_is_taken_for_a_broker(self) -> None:
        connection = new_connection()  # no APIs are known yet
        with pytest.raises(UnsupportedByBroker) as refused:
            connection.version_for(MetadataRequest)
        assert "controller's port" in refused.value.advice

    def test_a_broker_that_knows_only_an_older_apiversions(self, script: Any) -> None:
        """KIP-511: it answers in version 0 with error 35 and its own range; we ask again inside it."""
        connection = new_connection()
        connection.begin(DEADLINE)
        connection.take_output()
        refusal = ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
        )
        assert connection.receive(script.answer(0, refusal, 0)) == []
        ((key, version, number, *_),) = requests_in(connection.take_output())
        assert (key, version, number) == (18, 2, 1)
        connection.receive(script.versions(1, version=2))
        assert connection.is_ready

    def test_a_broker_that_refuses_every_version(self, script: Any) -> None:
        connection = new_connection()
        connection.begin(DEADLINE)
        refusal = ApiVersionsResponse(error_code=35, api_keys=[])
        connection.receive(script.answer(0, refusal, 0))
        with pytest.raises(BadResponse, match="rejects every version"):
            connection.receive(script.answer(1, refusal, 0))

    def test_another_error_ends_the_negotiation(self, script: Any) -> None:
        connection = new_connection()
        connection.begin(DEADLINE)
        with pytest.raises(BadResponse, match="error 42"):
            connection.receive(script.answer(0, ApiVersionsResponse(error_code=42), 4))


class TestAnswers:
    def test_answers_are_matched_in_order(self, ready: Ready, script: Any) -> None:
        connection = ready()
        first = connection.send(MetadataRequest(), DEADLINE)
        second = connection.send(MetadataRequest(), DEADLINE)
        data = script.answer(first, metadata_answer(1), 13) + script.answer(second, metadata_answer(2), 13)
        answers = connection.receive(data)
        assert [(a.correlation_id, len(a.response.brokers)) for a in answers] == [(first, 1), (second, 2)]
        assert connection.deadline() == NEVER

    def test_a_request_without_an_answer_takes_no_place_in_the_queue(self, ready: Ready, script: Any) -> None:
        connection = ready()
        connection.send(ProduceRequest(acks=0, timeout_ms=1), DEADLINE, expects_answer=False)
        asked = connection.send(MetadataRequest(), DEADLINE)
        assert [
            a.correlation_id for a in connection.receive(script.answer(asked, metadata_answer(1), 13))
        ] == [asked]

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_cut_of_the_stream_gives_the_same_answers(self, data: st.DataObject) -> None:
        """Frames below, at and above the shared buffer, cut anywhere."""
        from headrace.protocol.api import response_codec
        from headrace.protocol.framing import response_bytes

        sizes = data.draw(st.lists(st.sampled_from([0, 1, 50, 320, 330, 700]), min_size=1, max_size=5))
        connection = new_connection()
        connection.is_ready = True
        connection.versions = {3: (0, 13)}
        stream = b""
        codec = response_codec(3, 13)
        for count in sizes:
            number = connection.send(MetadataRequest(), DEADLINE)
            stream += response_bytes(number, codec.header_version, codec.encode(metadata_answer(count)))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
        found = []
        for start, stop in pairwise([0, *cuts, len(stream)]):
            found += connection.receive(stream[start:stop])
        assert [len(answer.response.brokers) for answer in found] == sizes

    def test_views_of_an_answer_outlive_the_next_one(self, ready: Ready, script: Any) -> None:
        """`records` are views: what comes later must not be written over them."""
        from headrace.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

        def fetched(fill: bytes) -> FetchResponse:
            data = PartitionData(partition_index=0, high_watermark=1, records=fill * 1000)
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

        connection = ready(api_1=(4, 12))
        one = connection.send(FetchRequest(), DEADLINE)
        two = connection.send(FetchRequest(), DEADLINE)
        (first,) = connection.receive(script.answer(one, fetched(b"a"), 12))
        kept = first.response.responses[0].partitions[0].records
        connection.receive(script.answer(two, fetched(b"b"), 12))
        assert bytes(kept) == b"a" * 1000


class TestBadPeers:
    def test_wrong_correlation_id(self, ready: Ready, script: Any) -> None:
        connection = ready()
        asked = connection.send(MetadataRequest(), DEADLINE)
        with pytest.raises(BadResponse, match=f"answered request {asked + 1}"):
            connection.receive(script.answer(asked + 1, metadata_answer(1), 13))

    def test_an_answer_that_nothing_asked_for(self, ready: Ready, script: Any) -> None:
        with pytest.raises(BadResponse, match="an answer without a request"):
            ready().receive(script.answer(1, metadata_answer(1), 13))

    @pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 1_000_001, 2**31 - 1])
    def test_impossible_sizes_are_refused_before_anything_is_stored(self, ready: Ready, size: int) -> None:
        connection = ready(response_bytes_max=1_000_000)
        connection.send(MetadataRequest(), DEADLINE)
        with pytest.raises(BadResponse, match="bytes"):
            connection.receive(size.to_bytes(4, "big", signed=True) + b"rest")
        assert len(connection.room()) <= SHARED_BUFFER_BYTES

    def test_a_batch_that_is_too_large_for_us_is_not_taken_for_a_stranger(self, ready: Ready) -> None:
        connection = ready(response_bytes_max=1_000_000)
        connection.send(MetadataRequest(), DEADLINE)
        with pytest.raises(BadResponse) as raised:
            connection.receive((1_000_001).to_bytes(4, "big"))
        assert "max.message.bytes" in raised.value.advice

    def test_an_answer_longer_than_its_message(self, ready: Ready, script: Any) -> None:
        connection = ready()
        asked = connection.send(MetadataRequest(), DEADLINE)
        whole = script.answer(asked, metadata_answer(1), 13)
        padded = (len(whole) - 4 + 7).to_bytes(4, "big") + whole[4:] + b"\0" * 7
        with pytest.raises(BadResponse, match="Metadata version 13"):
            connection.receive(padded)

    def test_every_truncation_of_an_answer_is_named(self, ready: Ready, script: Any) -> None:
        whole = script.answer(1, metadata_answer(2), 13)[4:]
        for length in range(4, len(whole)):
            connection = ready()
            connection.send(MetadataRequest(), DEADLINE)
            with pytest.raises(BadResponse):
                connection.receive(length.to_bytes(4, "big") + whole[:length])

    @settings(max_examples=300, deadline=None)
    @given(st.binary(min_size=1, max_size=400))
    def test_rubbish_is_never_more_than_a_client_error(self, rubbish: bytes) -> None:
        connection = new_connection(response_bytes_max=1000)
        connection.begin(DEADLINE)
        with suppress(ClientError):
            assert connection.receive(rubbish) == []
        assert not connection.is_ready

    @settings(max_examples=300, deadline=None)
    @given(st.binary(min_size=4, max_size=200))
    def test_a_rubbish_body_is_never_more_than_a_bad_response(self, body: bytes) -> None:
        connection = new_connection()
        connection.is_ready = True
        connection.versions = {3: (0, 13)}
        asked = connection.send(MetadataRequest(), DEADLINE)
        frame = asked.to_bytes(4, "big") + body
        try:
            (answer,) = connection.receive(len(frame).to_bytes(4, "big") + frame)
        except BadResponse:
            return
        assert isinstance(answer.response, MetadataResponse)

    @pytest.mark.parametrize(
        ("said", "named"),
        [
            (TLS_ALERT, "TLS"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
            (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        ],
    )
    def test_a_stranger_is_called_by_its_name(self, said: bytes, named: str) -> None:
        connection = new_connection()
        connection.begin(DEADLINE)
        with pytest.raises(BadResponse, match=named) as raised:
            connection.receive(said)
        assert "plaintext" in raised.value.advice
        assert not raised.value.is_retriable

    def test_a_peer_that_hangs_up_without_a_word_may_want_tls(self) -> None:
        connection = new_connection()
        connection.begin(DEADLINE)
        with pytest.raises(ConnectionLost, match="TLS"):
            connection.received(0)

    def test_the_end_of_the_stream_later_is_a_lost_connection(self, ready: Ready) -> None:
        with pytest.raises(ConnectionLost, match="closed the connection"):
            ready().received(0)


class TestTime:
    def test_the_earliest_deadline_counts(self, ready: Ready) -> None:
        connection = ready()
        connection.send(MetadataRequest(), Instant(30.0))
        connection.send(MetadataRequest(), Instant(20.0))
        assert connection.deadline() == 20.0
        connection.check_time(Instant(19.9))
        with pytest.raises(TimedOut, match="Metadata"):
            connection.check_time(Instant(20.0))

    def test_silence_during_negotiation(self) -> None:
        connection = new_connection()
        connection.begin(DEADLINE)
        with pytest.raises(TimedOut, match="ApiVersions"):
            connection.check_time(DEADLINE)
