"""Whom to ask when anybody will do, and when to come back to somebody who failed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from headrace.base.time import Instant
from headrace.client.cluster import Address
from headrace.client.errors import Unreachable
from headrace.client.network.reachability import REMEMBERED_MAX, BrokerSelection
from headrace.client.settings.network import NetworkSettings

A, B, C = (Address(name, 9092) for name in "abc")
BOOT, SPARE = Address("boot", 9092), Address("spare", 9092)
SETTINGS = NetworkSettings(
    (BOOT, SPARE), reconnect_first_s=1.0, reconnect_last_s=8.0, setup_first_s=10.0, setup_last_s=30.0
)
START = Instant(100.0)
REFUSED = Unreachable("refused")


@pytest.fixture
def roster(rng: random.Random) -> BrokerSelection:
    return BrokerSelection(SETTINGS, rng)


class TestChoice:
    def test_bootstrap_addresses_go_round_while_nobody_is_known(self, roster: BrokerSelection) -> None:
        chosen = [roster.choose(START, [], set()) for _ in range(4)]
        assert chosen[:2] == chosen[2:]
        assert set(chosen) == {BOOT, SPARE}

    def test_clients_do_not_all_begin_with_the_same(self) -> None:
        firsts = {
            BrokerSelection(SETTINGS, random.Random(seed)).choose(START, [], set()) for seed in range(20)
        }
        assert firsts == {BOOT, SPARE}

    def test_brokers_of_the_cluster_go_round(self, roster: BrokerSelection) -> None:
        chosen = [roster.choose(START, [A, B, C], set()) for _ in range(6)]
        assert chosen[:3] == chosen[3:]
        assert set(chosen) == {A, B, C}

    def test_a_connection_that_is_there_is_used(self, roster: BrokerSelection) -> None:
        assert {roster.choose(START, [A, B, C], {B}) for _ in range(6)} == {B}

    def test_a_connection_to_a_bootstrap_address_is_left_for_the_brokers(
        self, roster: BrokerSelection
    ) -> None:
        assert roster.choose(START, [A], {BOOT}) == A

    def test_who_failed_comes_after_who_did_not_even_when_the_pause_is_over(
        self, roster: BrokerSelection
    ) -> None:
        roster.failed(START, A, REFUSED)
        later = Instant(START + 60)
        assert {roster.choose(later, [A, B], {A}) for _ in range(4)} == {B}
        roster.connected(A)
        assert {roster.choose(later, [A, B], {A}) for _ in range(4)} == {A}

    def test_bootstrap_addresses_help_when_every_broker_failed(self, roster: BrokerSelection) -> None:
        """All brokers may have moved."""
        roster.failed(START, A, REFUSED)
        roster.failed(START, B, REFUSED)
        assert {roster.choose(START, [A, B], set()) for _ in range(4)} == {BOOT, SPARE}

    def test_unless_the_user_forbids_it(self, rng: random.Random) -> None:
        roster = BrokerSelection(replace(SETTINGS, may_rebootstrap=False), rng)
        assert roster.choose(START, [], set()) in (BOOT, SPARE)
        roster.failed(START, A, REFUSED)
        assert roster.choose(START, [A], set()) == A

    def test_of_those_in_their_pause_the_one_that_failed_least(self, roster: BrokerSelection) -> None:
        for address, times in ((A, 3), (B, 1), (BOOT, 2), (SPARE, 2)):
            for _ in range(times):
                roster.failed(START, address, REFUSED)
        assert roster.choose(START, [A, B], set()) == B

    def test_one_address_given_twice(self, roster: BrokerSelection) -> None:
        assert roster.choose(START, [A, A], set()) == A


class TestPauses:
    def test_nobody_waits_for_an_address_that_did_not_fail(self, roster: BrokerSelection) -> None:
        assert roster.connect_at(A) <= START
        assert roster.last_error(A) is None

    def test_the_pause_doubles_up_to_its_longest(self, roster: BrokerSelection) -> None:
        for expected in (1, 2, 4, 8, 8):
            roster.failed(START, A, REFUSED)
            assert START + 0.8 * expected <= roster.connect_at(A) <= START + 1.2 * expected
            assert roster.last_error(A) is REFUSED

    def test_a_connection_that_got_ready_ends_it(self, roster: BrokerSelection) -> None:
        for _ in range(4):
            roster.failed(START, A, REFUSED)
        roster.connected(A)
        assert roster.connect_at(A) <= START
        roster.failed(START, A, REFUSED)
        assert roster.connect_at(A) <= START + 1.2

    def test_clients_do_not_come_back_in_step(self) -> None:
        moments = set()
        for seed in range(20):
            roster = BrokerSelection(SETTINGS, random.Random(seed))
            roster.failed(START, A, REFUSED)
            moments.add(roster.connect_at(A))
        assert len(moments) > 15

    def test_a_slow_broker_is_given_more_time(self, roster: BrokerSelection) -> None:
        assert roster.setup_s(A) == 10.0
        roster.failed(START, A, REFUSED)
        assert 16.0 <= roster.setup_s(A) <= 24.0
        for _ in range(5):
            roster.failed(START, A, REFUSED)
        assert 24.0 <= roster.setup_s(A) <= 36.0

    def test_the_memory_is_bounded(self, roster: BrokerSelection) -> None:
        for port in range(1, REMEMBERED_MAX + 2):
            roster.failed(START, Address("x", port), REFUSED)
        assert roster.last_error(Address("x", 1)) is None
        assert roster.last_error(Address("x", 2)) is REFUSED
