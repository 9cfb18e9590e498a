"""Request and answer frames as bytes, for every simulated connection.

Requests are encoded and answers decoded with the protocol's own codecs.
"""

from collections.abc import Iterable
from typing import Any

from headrace.client.network.connection import ByVersion
from headrace.client.session import Outgoing
from headrace.protocol.api import APIS, request_codec, response_codec
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.notation import Request
from headrace.storage.disk import Span

SIZE_BYTES = 4


def joined(parts: Iterable[Any]) -> bytes:
    """The bytes of a frame; those of a span are read from its file."""
    return b"".join(part.read() if isinstance(part, Span) else part for part in parts)


def newest_request(outgoing: Outgoing) -> tuple[Request, int]:
    """What a session wants to send, in the newest version that it and our broker know; that version."""
    question = outgoing.question
    api = APIS[question.kind.KEY if isinstance(question, ByVersion) else question.KEY]
    version = api.last if outgoing.version_max is None else min(api.last, outgoing.version_max)
    return (question.make(version) if isinstance(question, ByVersion) else question), version


def request_bytes(api_key: int, version: int, correlation_id: int, client: str, request: Any) -> bytearray:
    """A request as the node gets it: without the size in front."""
    body = request_codec(api_key, version).encode_parts(request)
    return bytearray(joined(request_frame(api_key, version, correlation_id, client, body))[SIZE_BYTES:])


def correlation_id_of(frame: bytes) -> int:
    """Of an answer with the size in front."""
    return int.from_bytes(frame[SIZE_BYTES : SIZE_BYTES + 4], "big", signed=True)


def read_answer(frame: bytes, api_key: int, version: int) -> Any:
    """The message of an answer as it left the node: with the size in front."""
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
    codec = response_codec(api_key, version)
    view = memoryview(frame)[SIZE_BYTES:]
    _, position = decode_response_header(view, codec.header_version)
    return codec.decode(view, position)
