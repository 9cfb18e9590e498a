"""A consumer's settings as its machines get them, from what the user wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.client.assignors import ASSIGNORS, Assignment, GroupMember
from headrace.client.settings.configuration import Configuration, InvalidSetting
from headrace.client.settings.consumer import (
    READ_COMMITTED,
    ConsumerSettings,
    GroupProtocol,
    GroupSettings,
    Reset,
    ResetKind,
    consumer_settings,
)
from headrace.client.settings.keys import consumer_keys


def configured(**given: object) -> Configuration:
    return Configuration(consumer_keys(), {"bootstrap_servers": "h:1", **given})


def test_without_a_word_of_the_user_they_are_kafkas_defaults() -> None:
    assert consumer_settings(configured()) == ConsumerSettings()
    assert consumer_settings(configured(group_id="g")) == ConsumerSettings(
        group=GroupSettings("g", auto_commit_interval_s=5.0)
    )


def test_everything_arrives() -> None:
    settings = consumer_settings(
        configured(
            group_id="g",
            group_protocol="CONSUMER",
            group_instance_id="i",
            group_remote_assignor="range",
            client_rack="r1",
            enable_auto_commit=False,
            auto_offset_reset="by_duration:PT1S",
            isolation_level="read_committed",
            check_crcs=False,
            fetch_min_bytes=2,
            fetch_max_bytes=3,
            fetch_max_wait_ms=4,
            max_partition_fetch_bytes=5,
            max_poll_records=6,
            request_timeout_ms=7000,
            default_api_timeout_ms=8000,
            metadata_max_age_ms=9000,
            allow_auto_create_topics=False,
            exclude_internal_topics=False,
            retry_backoff_ms=10,
            retry_backoff_max_ms=20,
            session_timeout_ms=11_000,
            heartbeat_interval_ms=1200,
            max_poll_interval_ms=13_000,
            partition_assignment_strategy="roundrobin,sticky",
        )
    )
    assert settings == ConsumerSettings(
        group=GroupSettings(
            "g",
            protocol=GroupProtocol.CONSUMER,
            instance_id="i",
            rack="r1",
            session_timeout_s=11.0,
            heartbeat_interval_s=1.2,
            max_poll_interval_s=13.0,
            assignors=(ASSIGNORS["roundrobin"], ASSIGNORS["sticky"]),
            server_assignor="range",
            metadata_max_age_s=9.0,
            allow_auto_create_topics=False,
            excludes_internal_topics=False,
            request_timeout_s=7.0,
            api_timeout_s=8.0,
            auto_commit_interval_s=None,
        ),
        reset=Reset(ResetKind.BY_DURATION, 1000),
        isolation=READ_COMMITTED,
        checks_crcs=False,
        fetch_bytes_min=2,
        fetch_bytes_max=3,
        fetch_wait_max_ms=4,
        partition_bytes_max=5,
        max_poll_records=6,
        request_timeout_s=7.0,
        api_timeout_s=8.0,
        metadata_age_s=9.0,
        allow_auto_create_topics=False,
        retry_first_s=0.01,
        retry_last_s=0.02,
    )


def test_assignors_are_known_by_javas_names_too_and_users_have_their_own() -> None:
    class Mine:
        name = "mine"

        def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assignment:
            raise AssertionError("nobody joins here")

    mine: Any = Mine()
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    settings = consumer_settings(
        configured(group_id="g", partition_assignment_strategy=[java, "mine"]), assignors=[mine]
    )
    assert settings.group is not None
    assert settings.group.assignors == (ASSIGNORS["cooperative-sticky"], mine)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"enable_auto_commit": True}, r"group\.id"),
        ({"group_id": "g", "heartbeat_interval_ms": 50_000}, r"session\.timeout\.ms"),
        (
            {"group_id": "g", "partition_assignment_strategy": "rnage"},
            "one or more of cooperative-sticky, range",
        ),
        ({"group_id": "g", "partition_assignment_strategy": ""}, "must name at least one assignor"),
        ({"auto_offset_reset": "never"}, r"auto\.offset\.reset"),
    ],
)
def test_what_cannot_be(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        consumer_settings(configured(**given))
