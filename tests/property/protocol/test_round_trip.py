"""What is encoded comes back equal, for every message in every version, whole and in parts."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.messages import every_version, messages, name_of
from headrace.protocol.compiler import codec
from headrace.protocol.notation import Message
from headrace.simulator.frames import joined

QUICK = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize(("kind", "version"), every_version(), ids=name_of)
def test_message_comes_back_equal(kind: type[Message], version: int) -> None:
    compiled = codec(kind, version)

    @QUICK
    @given(message=messages(kind, version), before=st.binary(max_size=3))
    def comes_back(message: Any, before: bytes) -> None:
        encoded = compiled.encode(message)
        assert joined(compiled.encode_parts(message)) == encoded
        for buffer in (before + encoded, memoryview(before + encoded), bytearray(before + encoded)):
            assert compiled.decode(buffer, len(before)) == message
        assert _at_once(compiled.decode_steps(before + encoded, len(before))) == message

    comes_back()


def _at_once(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
