"""Random frames: samples of every request and response, mutated from a seed, and the check that they pass."""

from __future__ import annotations

import random

from harness.messages import sample
from headrace.protocol import framing
from headrace.protocol.api import APIS, request_codec, response_codec
from headrace.protocol.errors import MalformedMessage, UnsupportedVersion

# what lengths and counts like to be when somebody lies
LIES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\x7f",
)


def one(data: bytes) -> None:
    """Reads a frame as a request, and its body once more as the response of that API and version."""
    frame = memoryview(data)
    try:
        api_key, version, _, _, position = framing.decode_request_header(frame)
        request, response = request_codec(api_key, version), response_codec(api_key, version)
    except (MalformedMessage, UnsupportedVersion):
        return
    for codec in (request, response):
        try:
            message = codec.decode(frame, position)
        except MalformedMessage:
            continue
        # what was understood can be said again
        codec.encode(message)


def frame_of(rng: random.Random) -> bytes:
    """A valid request frame, or a request header with the body of the response."""
    api = rng.choice(list(APIS.values()))
    version = rng.randint(api.first, api.last)
    codec = rng.choice((request_codec, response_codec))(api.key, version)
    body = codec.encode(sample(codec.message, version, rng))
    header = framing.encode_request_header(api.key, version, rng.getrandbits(31), "fuzz", len(body))
    return header[4:] + body


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:
                del out[position:]
            case 1:
                out[position : position + 1] = rng.randbytes(1)
            case 2:
                lie = rng.choice(LIES)
                out[position : position + len(lie)] = lie
            case 3:
                out[position:position] = rng.randbytes(rng.randint(1, 4))
            case 4:
                del out[position : position + rng.randint(1, 4)]
            case 5:
                other = rng.randrange(len(out) + 1)
                out[position:position] = out[min(position, other) : max(position, other)]
    return bytes(out)


def drawn(rng: random.Random) -> bytes:
    return mutated(frame_of(rng), rng)
