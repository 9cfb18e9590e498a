"""Frames full of rubbish: whatever a peer sends, decoding it answers with a message or with the peer's fault.

`one` takes the bytes of a frame behind its size. The bytes that it is fed are samples of every request and
response, mutated by a seeded die. `make test` runs a bounded number; for longer:

    python tests/fuzz/fuzz_frames.py --seconds 60 --seed 7
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.fuzz_cases import main, run_cases
from harness.messages import sample
from headrace.protocol import framing
from headrace.protocol.api import APIS, request_codec, response_codec
from headrace.protocol.errors import MalformedMessage, UnsupportedVersion

CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "5000"))
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


def frame_of(dice: random.Random) -> bytes:
    """A valid request frame, or a request header with the body of the response."""
    api = dice.choice(list(APIS.values()))
    version = dice.randint(api.first, api.last)
    codec = dice.choice((request_codec, response_codec))(api.key, version)
    body = codec.encode(sample(codec.message, version, dice))
    header = framing.encode_request_header(api.key, version, dice.getrandbits(31), "fuzz", len(body))
    return header[4:] + body


def mutated(data: bytes, dice: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        position = dice.randrange(len(out) + 1)
        match dice.randrange(6):
            case 0:
                del out[position:]
            case 1:
                out[position : position + 1] = dice.randbytes(1)
            case 2:
                lie = dice.choice(LIES)
                out[position : position + len(lie)] = lie
            case 3:
                out[position:position] = dice.randbytes(dice.randint(1, 4))
            case 4:
                del out[position : position + dice.randint(1, 4)]
            case 5:
                other = dice.randrange(len(out) + 1)
                out[position:position] = out[min(position, other) : max(position, other)]
    return bytes(out)


def drawn(dice: random.Random) -> bytes:
    return mutated(frame_of(dice), dice)


def test_frames_of_rubbish() -> None:
    assert run_cases(drawn, one, seed=1, cases=CASES) == CASES


if __name__ == "__main__":
    main(drawn, one, __doc__)
