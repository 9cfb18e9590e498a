"""Quotas: which one holds, who shares it, and how many meters there can be."""

from __future__ import annotations

import pytest

from headrace.base.time import Instant
from headrace.machines.security.quotas import (
    DEFAULT,
    ClientQuotas,
    ConnectionRates,
    QuotaEntity,
    byte_rates,
    mutation_rates,
    percent,
    request_percentages,
)
from headrace.machines.security.rates import Rate, Windows

NOW = Instant(5_000.0)
LEVELS = [
    QuotaEntity("ada", "app"),
    QuotaEntity("ada", DEFAULT),
    QuotaEntity("ada", None),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT, None),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]


def meter(quotas: ClientQuotas[Rate], user: str, client_id: str, now: Instant = NOW) -> Rate:
    found = quotas.meter(user, client_id, now)
    assert found is not None
    return found


class TestLevels:
    def test_the_first_of_eight_decides(self) -> None:
        quotas = byte_rates()
        for number, entity in enumerate(LEVELS):
            quotas.change(entity, 1000 + number)
        for number, entity in enumerate(LEVELS):
            assert quotas.find("ada", "app") == (entity, 1000 + number)
            quotas.change(entity, None)
        assert quotas.find("ada", "app") is None
        assert quotas.meter("ada", "app", NOW) is None
        assert quotas.is_empty

    def test_quotas_of_others_do_not_count(self) -> None:
        quotas = byte_rates()
        for entity in (QuotaEntity("bob", "app"), QuotaEntity("bob", None), QuotaEntity(None, "tool")):
            quotas.change(entity, 1)
        assert quotas.find("ada", "app") is None

    def test_an_empty_client_id_has_the_default(self) -> None:
        quotas = byte_rates()
        quotas.change(QuotaEntity(None, DEFAULT), 1)
        assert quotas.find("ada", "") == (QuotaEntity(None, DEFAULT), 1)

    @pytest.mark.parametrize(
        ("entity", "shared", "apart"),
        [
            (QuotaEntity("ada", None), ("ada", "tool"), ()),
            (QuotaEntity(DEFAULT, None), ("ada", "tool"), ("bob", "app")),
            (QuotaEntity(None, "app"), ("bob", "app"), ()),
            (QuotaEntity(None, DEFAULT), ("bob", "app"), ("ada", "tool")),
            (QuotaEntity("ada", "app"), ("ada", "app"), ()),
            (QuotaEntity("ada", DEFAULT), ("ada", "app"), ("ada", "tool")),
            (QuotaEntity(DEFAULT, "app"), ("ada", "app"), ("bob", "app")),
            (QuotaEntity(DEFAULT, DEFAULT), ("ada", "app"), ("bob", "tool")),
        ],
    )
    def test_who_shares_a_quota(
        self, entity: QuotaEntity, shared: tuple[str, str], apart: tuple[str, ...]
    ) -> None:
        quotas = byte_rates()
        quotas.change(entity, 1000)
        first = meter(quotas, "ada", "app")
        assert meter(quotas, *shared) is first
        if apart:
            assert meter(quotas, apart[0], apart[1]) is not first


class TestChanges:
    def test_a_changed_quota_counts_for_the_same_meter(self) -> None:
        quotas = byte_rates()
        quotas.change(QuotaEntity("ada", None), 1000)
        first, version = meter(quotas, "ada", "app"), quotas.version
        assert first.record(10_000, NOW) == 0
        assert quotas.version is version
        quotas.change(QuotaEntity("ada", None), 500)
        assert quotas.version is not version
        assert meter(quotas, "ada", "app") is first
        assert first.record(0, NOW) == 10_000

    def test_a_more_specific_quota_takes_over(self) -> None:
        quotas = byte_rates()
        quotas.change(QuotaEntity("ada", None), 1000)
        first = meter(quotas, "ada", "app")
        quotas.change(QuotaEntity("ada", "app"), 10)
        assert meter(quotas, "ada", "app") is not first
        assert meter(quotas, "ada", "tool") is first


class TestNumberOfMeters:
    def quotas(self, *, limit: int, few: int) -> ClientQuotas[Rate]:
        quotas = ClientQuotas(lambda bound: Rate(bound, Windows(2, 1.0)), limit, few)
        quotas.change(QuotaEntity(None, DEFAULT), 100)
        return quotas

    def test_idle_ones_go_when_new_ones_come(self) -> None:
        quotas = self.quotas(limit=1000, few=10)
        for number in range(1000):
            meter(quotas, "ada", f"client-{number}", Instant(NOW + number)).record(1, Instant(NOW + number))
            assert len(quotas) <= 12

    def test_whoever_is_dropped_gets_another(self) -> None:
        quotas = self.quotas(limit=1000, few=1)
        first, version = meter(quotas, "ada", "a"), quotas.version
        first.record(1, NOW)
        meter(quotas, "ada", "b", Instant(NOW + 1.9))
        assert quotas.version is version
        meter(quotas, "ada", "c", Instant(NOW + 2))
        assert quotas.version is not version
        assert meter(quotas, "ada", "a", Instant(NOW + 2)) is not first

    def test_at_the_limit_further_clients_share_one(self) -> None:
        """Somebody who invents client ids does not get a quota for each, and costs no memory."""
        quotas = self.quotas(limit=10, few=5)
        meters = set()
        for number in range(1000):
            made = meter(quotas, "ada", f"client-{number}")
            made.record(1, NOW)
            meters.add(id(made))
        assert len(meters) == len(quotas) == 11
        assert meter(quotas, "ada", "client-5000").record(0, NOW) > 0


class TestKinds:
    def test_request_percentage_is_time_of_the_loop(self) -> None:
        quotas = request_percentages()
        quotas.change(QuotaEntity("ada", None), 50)
        rate = meter(quotas, "ada", "app")
        assert rate.record(percent(5.0), NOW) == 0
        assert rate.record(percent(0.1), NOW) == 200
        assert rate.record(percent(60), NOW) == 1000  # at most a window

    def test_mutations(self) -> None:
        quotas = mutation_rates()
        quotas.change(QuotaEntity("ada", None), 10)
        bucket = quotas.meter("ada", "app", NOW)
        assert bucket is not None
        assert bucket.spend(120, NOW, is_strict=True) == 0
        assert bucket.spend(1, NOW, is_strict=True) == 1000


class TestConnectionRates:
    def test_without_quotas_everybody_connects(self) -> None:
        rates = ConnectionRates()
        assert [rates.admit("10.0.0.1", NOW) for _ in range(1000)] == [0] * 1000
        assert len(rates) == 0

    def test_an_address_and_the_default(self) -> None:
        rates = ConnectionRates()
        rates.change("0:0:0:0:0:0:0:1", 1)
        rates.change(DEFAULT, 2)
        assert [rates.admit("::1", NOW) for _ in range(11)] == [0] * 10 + [1000]
        assert [rates.admit("10.0.0.1", NOW) for _ in range(21)] == [0] * 20 + [500]
        assert rates.admit("10.0.0.2", NOW) == 0
        rates.change("::1", None)
        assert rates.admit("::1", NOW) == 0

    def test_what_is_refused_does_not_count(self) -> None:
        rates = ConnectionRates()
        rates.change(DEFAULT, 1)
        throttles = {rates.admit("10.0.0.1", NOW) for _ in range(1000)}
        assert throttles == {0, 1000}
        assert rates.admit("10.0.0.1", Instant(NOW + 10.5)) == 500  # the eleventh in 10.5 seconds
        assert rates.admit("10.0.0.1", Instant(NOW + 11)) == 0

    def test_a_bounded_number_of_addresses(self) -> None:
        rates = ConnectionRates(limit=10, few=5)
        rates.change(DEFAULT, 1)
        for number in range(1000):
            rates.admit(f"10.0.{number // 250}.{number % 250}", NOW)
        assert len(rates) == 11
