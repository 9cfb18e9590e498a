"""Waiting for a condition instead of for a time.

Kafka applies metadata a moment after the controller has answered, so what a test has just changed may be
seen late; `eventually` asks again until it is so, and shows the last answer when it never is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(ask: Callable[[], T], expected: T, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while (answer := ask()) != expected:
        if time.monotonic() > deadline:
            raise AssertionError(f"still {answer!r} after {timeout_s} s, expected {expected!r}")
        time.sleep(0.02)
