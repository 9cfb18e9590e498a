"""Messages as values: keywords, defaults, equality, and facts kept on the class."""

from __future__ import annotations

import pytest

from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.protocol.messages.vote import VoteRequest
from headrace.protocol.notation import ZERO_UUID, Versions, version_range


def test_defaults() -> None:
    topic = MetadataRequestTopic()
    assert (topic.topic_id, topic.name) == (ZERO_UUID, "")
    assert MetadataRequest().allow_auto_topic_creation is True


def test_lists_are_not_shared() -> None:
    first, second = MetadataResponse(), MetadataResponse()
    first.brokers.append(None)  # type: ignore[arg-type]
    assert second.brokers == []


def test_misspelt_field_is_refused() -> None:
    with pytest.raises(TypeError):
        MetadataRequest(topic=[])  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        MetadataRequest().topic = []  # type: ignore[attr-defined]


def test_equality_looks_at_every_field() -> None:
    assert MetadataRequestTopic(name="a") == MetadataRequestTopic(name="a")
    assert MetadataRequestTopic(name="a") != MetadataRequestTopic(name="b")
    assert MetadataRequestTopic() != VoteRequest()
    with pytest.raises(TypeError):
        hash(MetadataRequestTopic())


def test_repr_tells_what_is_not_default() -> None:
    assert repr(MetadataRequestTopic(name="a")) == "MetadataRequestTopic(name='a')"


def test_facts() -> None:
    assert MetadataRequest.KEY == 3
    assert Versions(0, 13) == MetadataRequest.VERSIONS
    assert 9 in MetadataRequest.FLEXIBLE
    assert 8 not in MetadataRequest.FLEXIBLE


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("3-5", [3, 5], [2, 6]), ("3+", [3, 99], [2]), ("none", [], [0])],
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    span = version_range(text)
    assert all(version in span for version in inside)
    assert not any(version in span for version in outside)
