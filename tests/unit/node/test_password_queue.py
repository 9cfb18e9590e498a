"""Passwords that wait for their check: which one is next, and which ones have to go."""

from __future__ import annotations

import pytest

from headrace.base.time import Instant, Now
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.plain import PlainLogin
from headrace.machines.security.scram import SHA_256
from headrace.node import password_queue
from headrace.node.effects import Effect, Run
from headrace.node.password_check import PasswordCheck
from headrace.node.password_queue import PasswordQueue, WaitingCheck
from headrace.node.ports import Jobs

NOW = Now(Instant(0.0), 0)
TOO_MANY = "3 other passwords have to be checked first"


class Desk:
    """The queue, and a driver that runs its jobs when it is told to."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.jobs = Jobs(self.effects)
        self.queue = PasswordQueue(self.jobs, "d", "a")
        self.told: list[tuple[str, str | None]] = []

    def add(self, user: str, address: str = "1") -> WaitingCheck:
        check = PasswordCheck(PlainLogin(user, "p"), SHA_256, None, b"secret", None)
        return self.queue.add(NOW, address, check, lambda now, refused: self.told.append((user, refused)))

    @property
    def running(self) -> list[str]:
        users = []
        for effect in self.effects:
            assert isinstance(effect, Run)
            assert isinstance(effect.job, PasswordCheck)
            users.append(effect.job.login.user)
        return users

    def finish(self, result: object = None) -> None:
        """The first that runs is done."""
        effect = self.effects.pop(0)
        assert isinstance(effect, Run)
        self.jobs.end(effect.ticket)(NOW, result)


def test_they_are_checked_one_after_the_other() -> None:
    desk = Desk()
    for user in "uvw":
        desk.add(user)
    assert desk.running == ["u"]
    desk.finish()
    assert desk.running == ["v"]
    desk.finish("wrong")
    assert desk.told == [("u", None), ("v", "wrong")]
    assert desk.running == ["w"]
    assert desk.queue.count == 0
    assert {effect.queue for effect in desk.effects if isinstance(effect, Run)} == {"a"}


def test_a_job_that_fails_lets_nobody_in_and_the_next_one_begin() -> None:
    desk = Desk()
    desk.add("u")
    desk.add("v")
    desk.finish(OSError("no thread"))
    assert desk.told == [("u", "no thread")]
    assert desk.running == ["v"]


def test_one_that_is_dropped_is_not_checked() -> None:
    desk = Desk()
    checks = [desk.add(user) for user in "uvw"]
    desk.queue.drop(checks[1])
    desk.queue.drop(checks[1])
    desk.finish()
    assert desk.running == ["w"]
    desk.finish()
    assert desk.running == []
    assert desk.told == [("u", None), ("w", None)]


def test_one_that_is_dropped_while_it_is_checked_is_told() -> None:
    desk = Desk()
    running = desk.add("u")
    desk.add("v")
    desk.queue.drop(running)
    assert desk.queue.count == 1
    desk.finish()
    assert desk.told == [("u", None)]
    assert desk.running == ["v"]


def test_addresses_take_turns() -> None:
    desk = Desk()
    for user in ("a1", "a2", "a3", "a4"):
        desk.add(user, "10.0.0.1")
    desk.add("b1", "10.0.0.2")
    desk.add("c1", "10.0.0.3")
    desk.add("b2", "10.0.0.2")
    order = []
    while desk.effects:
        order += desk.running
        desk.finish()
    assert order == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


def test_if_there_is_no_room_those_of_the_busiest_address_have_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_queue, "WAITING_MAX", 3)
    desk = Desk()
    for user in ("a1", "a2", "a3", "a4"):
        desk.add(user, "10.0.0.1")
    with pytest.raises(LoginRefused, match=TOO_MANY):
        desk.add("a5", "10.0.0.1")
    desk.add("b1", "10.0.0.2")
    assert desk.told == [("a4", TOO_MANY)]
    desk.add("c1", "10.0.0.3")
    assert desk.told == [("a4", TOO_MANY), ("a3", TOO_MANY)]
    with pytest.raises(LoginRefused, match=TOO_MANY):
        desk.add("b2", "10.0.0.2")  # nobody has more than this one
    assert desk.queue.count == 3
    order = []
    while desk.effects:
        order += desk.running
        desk.finish()
    assert order == ["a1", "a2", "b1", "c1"]
