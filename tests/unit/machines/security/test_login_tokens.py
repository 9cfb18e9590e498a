"""Tokens with which a node logs in: which one counts, and when the next one is fetched."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from harness.tokens import token_of
from headrace.base.time import ManualClock
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.login_tokens import LoginToken, RefreshRules

RULES = RefreshRules(0.8, 0.0, 0.0, 0.0, 100, 350)


class Fixed:
    def __init__(self, number: int) -> None:
        self.number = number

    def randbytes(self, n: int) -> bytes:
        return bytes(n)

    def randrange(self, stop: int) -> int:
        return min(self.number, stop - 1)


def token(clock: ManualClock, lifetime_s: float, **claims: object) -> str:
    return token_of({"alg": "RS256"}, {"exp": clock.wall_ms / 1000 + lifetime_s, **claims})


def test_a_token_counts_until_it_expires() -> None:
    clock = ManualClock()
    login = LoginToken(RULES, Random(1))
    assert login.current(clock.now()) is None
    text = token(clock, 100)
    login.came(clock.now(), f"{text}\n")
    assert login.current(clock.now()) == text
    assert login.next_at == pytest.approx(clock.mono + 80)
    clock.advance(99.9)
    assert login.current(clock.now()) == text
    clock.advance(0.2)
    assert login.current(clock.now()) is None


def test_the_old_one_counts_while_the_next_one_does_not_come() -> None:
    clock = ManualClock()
    login = LoginToken(RULES, Random(1))
    text = token(clock, 100)
    login.came(clock.now(), text)
    clock.advance(80)
    waits = []
    for _ in range(4):
        login.failed(clock.now())
        waits.append(round(login.next_at - clock.mono, 3))
    assert waits == [0.1, 0.2, 0.35, 0.35]
    assert login.current(clock.now()) == text
    login.came(clock.now(), token(clock, 50))
    assert login.next_at == pytest.approx(clock.mono + 40)
    login.failed(clock.now())
    assert login.next_at == pytest.approx(clock.mono + 0.1), "the first wait is short again"


@pytest.mark.parametrize(
    ("rules", "drawn", "lifetime_s", "wait_s"),
    [
        (replace(RULES, window_jitter=0.05), 999, 100, 84.995),
        (replace(RULES, window_jitter=0.05), 0, 100, 80),
        (replace(RULES, buffer_s=300, min_period_s=60), 0, 1000, 700),  # the buffer asks for it sooner
        (replace(RULES, buffer_s=300, min_period_s=60), 0, 10_000, 8000),
        (replace(RULES, buffer_s=300, min_period_s=60), 0, 300, 240),  # both do not fit, and do not count
        (replace(RULES, buffer_s=1, min_period_s=95), 0, 100, 95),
        # the setting allows it, and between the end and the next one nobody could log in
        (replace(RULES, window_factor=1.0, window_jitter=0.25, buffer_s=300), 999, 200, 200),
    ],
)
def test_when_the_next_one_is_fetched(
    rules: RefreshRules, drawn: int, lifetime_s: float, wait_s: float
) -> None:
    clock = ManualClock()
    login = LoginToken(rules, Fixed(drawn))
    login.came(clock.now(), token(clock, lifetime_s))
    assert login.next_at - clock.mono == pytest.approx(wait_s)


@pytest.mark.parametrize("text", ["", "opaque", "a.b.c", token_of({"alg": "RS256"}, {"sub": "node"})])
def test_what_is_not_a_token(text: str) -> None:
    clock = ManualClock()
    login = LoginToken(RULES, Random(1))
    before = token(clock, 100)
    login.came(clock.now(), before)
    for wrong in (text, token(clock, -1)):
        with pytest.raises(LoginRefused):
            login.came(clock.now(), wrong)
    assert login.current(clock.now()) == before
