"""What is cut, mangled or lies about its length is the peer's fault, and costs no memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from harness import mutated_frames
from harness.messages import every_type, every_version, name_of, sample
from harness.seeded_cases import run_cases
from headrace.protocol.compiler import codec
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.notation import Message

EVERY_VERSION = pytest.mark.parametrize(("kind", "version"), every_version(), ids=name_of)


def encoded_sample(kind: type[Message], version: int) -> bytes:
    return codec(kind, version).encode(sample(kind, version, random.Random(f"{kind.__name__} {version}")))


@EVERY_VERSION
def test_every_truncation_is_malformed(kind: type[Message], version: int) -> None:
    encoded = encoded_sample(kind, version)
    compiled = codec(kind, version)
    for size in range(len(encoded)):
        with pytest.raises(MalformedMessage):
            compiled.decode(memoryview(encoded)[:size])


@pytest.mark.parametrize(
    ("kind", "version"),
    sorted(
        {(kind, version) for kind in every_type() for version in (kind.VERSIONS.first, kind.VERSIONS.last)},
        key=str,
    ),
    ids=name_of,
)
def test_lie_anywhere_allocates_little(kind: type[Message], version: int) -> None:
    """A count or length of two thousand million must be refused before anything is made from it.

    The first and the last version of each message stand for the plain and the compact form.
    """
    encoded = encoded_sample(kind, version)
    decode = codec(kind, version).decode
    lies = [
        encoded[:position] + lie + encoded[position + len(lie) :]
        for position in range(0, len(encoded), 1 + len(encoded) // 300)
        for lie in (b"\x7f\xff\xff\xf0", b"\xf0\xff\xff\xff\x07")
    ]
    decode(encoded)
    tracemalloc.start()
    try:
        for lie in lies:
            try:
                decode(lie)
            except MalformedMessage:
                continue
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_mangled_frames_raise_nothing_else() -> None:
    assert run_cases(mutated_frames.drawn, mutated_frames.one, seed=4, cases=10_000) == 10_000
