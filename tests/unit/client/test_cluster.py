"""Addresses as people write them, and the view of the cluster that Metadata answers build."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.cluster import Address, Cluster, TopicPartition, parse_bootstrap
from headrace.client.errors import BadResponse, InvalidInput
from headrace.protocol.messages.metadata import MetadataResponse

Told = Callable[..., MetadataResponse]


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("localhost", [("localhost", 9092)]),
            ("a:1,b:2", [("a", 1), ("b", 2)]),
            (" a:1 , b ", [("a", 1), ("b", 9092)]),
            ("[::1]:9093", [("::1", 9093)]),
            ("[::1]", [("::1", 9092)]),
            ("PLAINTEXT://a:1", [("a", 1)]),
        ],
    )
    def test_understood(self, text: str, expected: list[tuple[str, int]]) -> None:
        assert parse_bootstrap(text) == expected

    @pytest.mark.parametrize(
        "text", ["", " , ", ":9092", "a:b", "a:0", "a:70000", "a:-1", "[::1", "[::1]x", "a:1:2"]
    )
    def test_refused(self, text: str) -> None:
        with pytest.raises(InvalidInput):
            parse_bootstrap(text)

    @settings(max_examples=100, deadline=None)
    @given(st.text(max_size=30))
    def test_any_text_is_an_address_or_invalid_input(self, text: str) -> None:
        try:
            assert parse_bootstrap(text)
        except InvalidInput:
            return

    def test_an_ipv6_address_prints_as_it_is_written(self) -> None:
        assert str(Address("::1", 9092)) == "[::1]:9092"


class TestView:
    def test_leaders_and_names(self, cluster: Cluster) -> None:
        assert cluster.brokers == {1: Address("b1", 9001), 2: Address("b2", 9002)}
        assert cluster.leader_of(TopicPartition("orders", 1)) == 2
        assert cluster.leader_of(TopicPartition("orders", 2)) is None
        assert cluster.leader_of(TopicPartition("other", 0)) is None
        assert cluster.name_of("", cluster.topics["orders"].topic_id) == "orders"
        assert cluster.name_of("named", bytes(16)) == "named"

    def test_a_partition_without_a_leader(self, cluster: Cluster, told: Told) -> None:
        cluster.update(told(-1, 2))
        assert cluster.leader_of(TopicPartition("orders", 0)) is None

    def test_a_leader_that_nobody_lists_is_no_leader(self, cluster: Cluster, told: Told) -> None:
        cluster.update(told(7, 2))
        assert cluster.leader_of(TopicPartition("orders", 0)) is None

    def test_a_topic_with_an_error_is_forgotten(self, cluster: Cluster, told: Told) -> None:
        topic_id = cluster.topics["orders"].topic_id
        errors = cluster.update(told(error_code=3))
        assert errors["orders"].is_unknown_topic
        assert "orders" not in cluster.topics
        assert cluster.name_of("", topic_id) == ""

    def test_a_complete_answer_forgets_what_it_leaves_out(self, cluster: Cluster, told: Told) -> None:
        cluster.update(told(1, topic="other"))
        assert set(cluster.topics) == {"orders", "other"}
        cluster.update(told(1, topic="other"), is_complete=True)
        assert set(cluster.topics) == {"other"}

    def test_a_list_of_partitions_with_gaps_is_not_believed(self, cluster: Cluster, told: Told) -> None:
        answer = told(1, 2)
        answer.topics[0].partitions[1].partition_index = 2**31 - 1
        with pytest.raises(BadResponse, match="lacks some partitions"):
            cluster.update(answer)

    def test_partitions_are_kept_by_index_whatever_their_order(self, cluster: Cluster, told: Told) -> None:
        answer = told(1, 2, 1)
        answer.topics[0].partitions.reverse()
        cluster.update(answer)
        assert [partition.index for partition in cluster.topics["orders"].partitions] == [0, 1, 2]
