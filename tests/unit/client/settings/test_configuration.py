"""Settings from what users write: spellings, types, misspellings and contradictions."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.producer.partitioner import Strategy
from headrace.client.settings.configuration import Configuration, InvalidSetting
from headrace.client.settings.keys import admin_keys, consumer_keys, producer_keys
from headrace.client.settings.producer import sending_settings, strategy
from headrace.records.compression import Codec

SERVERS = {"bootstrap.servers": "localhost:9092"}


def producer(**given: Any) -> Configuration:
    return Configuration(producer_keys(), SERVERS | given)


class TestSpelling:
    def test_both_spellings_mean_the_same(self) -> None:
        assert producer(linger_ms=20)["linger.ms"] == 20
        assert producer(**{"linger.ms": "20"})["linger.ms"] == 20

    def test_the_same_twice_is_refused(self) -> None:
        with pytest.raises(InvalidSetting, match="twice"):
            producer(linger_ms=20, **{"linger.ms": 20})

    @pytest.mark.parametrize(
        ("wrong", "meant"),
        [
            ("linger_mss", "linger_ms"),
            ("linger.mss", "linger.ms"),
            ("batchsize", "batch.size"),
            ("bufer_memory", "buffer_memory"),
            ("max.inflight.requests.per.connection", "max.in.flight.requests.per.connection"),
        ],
    )
    def test_a_misspelling_is_told_with_what_was_meant(self, wrong: str, meant: str) -> None:
        with pytest.raises(InvalidSetting, match=f"did you mean {meant}"):
            producer(**{wrong: 1})

    def test_what_resembles_nothing_gets_no_guess(self) -> None:
        with pytest.raises(InvalidSetting, match=r"unknown setting zzz$"):
            producer(zzz=1)

    def test_a_consumers_key_is_not_a_producers(self) -> None:
        with pytest.raises(InvalidSetting):
            producer(group_id="g")
        assert Configuration(consumer_keys(), SERVERS | {"group_id": "g"})["group.id"] == "g"

    def test_servers_must_be_given(self) -> None:
        with pytest.raises(InvalidSetting, match=r"bootstrap\.servers is required"):
            Configuration(admin_keys(), {})


class TestValues:
    def test_lists_come_as_text_or_as_lists(self) -> None:
        for servers in ("a:1,b:2", ["a:1", "b:2"], ("a:1", "b:2")):
            configuration = Configuration(admin_keys(), {"bootstrap_servers": servers})
            assert configuration.items_of("bootstrap.servers") == ["a:1", "b:2"]

    @pytest.mark.parametrize(
        "given",
        [
            {"linger_ms": "soon"},
            {"linger_ms": -1},
            {"linger_ms": 1.5},
            {"acks": 2},
            {"compression_type": "rar"},
            {"enable_idempotence": "maybe"},
            {"buffer_memory": None},
            {"client_id": object()},
        ],
    )
    def test_a_wrong_value_is_told_with_its_key(self, given: dict[str, Any]) -> None:
        (name,) = given
        with pytest.raises(InvalidSetting, match=name.replace("_", ".")):
            producer(**given)

    def test_passwords_are_not_shown(self) -> None:
        with pytest.raises(InvalidSetting) as told:
            producer(ssl_key_password=["secret"])
        assert "secret" not in str(told.value)

    def test_keys_of_java_are_taken_and_told_of(self) -> None:
        configuration = producer(partitioner_class="org.example.Mine", linger_ms=1)
        assert configuration.without_effect() == ["partitioner.class"]


class TestDefaults:
    def test_a_producers_are_kafkas(self) -> None:
        settings = sending_settings(producer())
        assert (settings.acks, settings.codec, settings.linger_s) == (-1, Codec.NONE, 0.005)
        assert (settings.delivery_s, settings.request_timeout_s, settings.in_flight_max) == (120.0, 30.0, 5)
        assert settings.is_idempotent
        assert settings.transactional_id is None

    def test_every_key_has_a_value_and_a_text(self) -> None:
        for keys in (producer_keys(), consumer_keys(), admin_keys()):
            configuration = Configuration(keys, SERVERS)
            assert set(configuration) == set(keys)


class TestContradictions:
    @pytest.mark.parametrize("given", [{"acks": 1}, {"acks": "0"}, {"retries": 0}])
    def test_idempotence_gives_way_unless_it_was_asked_for(self, given: dict[str, Any]) -> None:
        assert not sending_settings(producer(**given)).is_idempotent
        with pytest.raises(InvalidSetting, match=r"enable\.idempotence needs"):
            sending_settings(producer(enable_idempotence=True, **given))
        with pytest.raises(InvalidSetting, match=r"transactional\.id needs"):
            sending_settings(producer(transactional_id="t", **given))

    def test_more_in_flight_than_a_broker_remembers_needs_idempotence_off(self) -> None:
        with pytest.raises(InvalidSetting, match="at most 5"):
            sending_settings(producer(max_in_flight_requests_per_connection=6))
        settings = sending_settings(
            producer(max_in_flight_requests_per_connection=6, enable_idempotence=False)
        )
        assert (settings.in_flight_max, settings.is_idempotent) == (6, False)

    def test_delivery_takes_at_least_a_wait_and_a_request(self) -> None:
        with pytest.raises(InvalidSetting, match=r"delivery\.timeout\.ms"):
            sending_settings(producer(delivery_timeout_ms=100, linger_ms=1000))
        assert sending_settings(producer(request_timeout_ms=200_000)).delivery_s == pytest.approx(200.005)


class TestPartitioners:
    def test_by_name(self) -> None:
        assert strategy(producer()) is Strategy.BY_KEY
        assert strategy(producer(partitioner="murmur2_random")) is Strategy.BY_KEY
        assert strategy(producer(partitioner="round_robin")) is Strategy.ROUND_ROBIN
        assert strategy(producer(partitioner_ignore_keys=True)) is Strategy.STICKY

    def test_a_level_counts_only_if_it_was_chosen(self) -> None:
        assert sending_settings(producer(compression_type="zstd")).compression_level is None
        chosen = sending_settings(producer(compression_type="zstd", compression_zstd_level=9))
        assert chosen.compression_level == 9
        assert sending_settings(producer(compression_zstd_level=9)).compression_level is None
