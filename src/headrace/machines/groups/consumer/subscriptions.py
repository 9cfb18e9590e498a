"""Subscriptions of a consumer group, and the existing topics that they select."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from headrace.machines.coordination import Topics
from headrace.machines.groups.consumer.group import ResolvedRegex
from headrace.machines.groups.consumer.member import Member


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Differs whenever one of the topics comes, goes, grows, or is recreated; 0 if none exists."""
    digest = blake2b(digest_size=8)
    is_any = False
    for name in sorted(names):
        count = topics.partition_count(name)
        topic_id = topics.id_of(name)
        if count is not None and topic_id is not None:
            is_any = True
            digest.update(topic_id + count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if is_any else 0


def topics_of(member: Member, regexes: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """All that a member subscribes to, by name and by pattern."""
    resolved = regexes.get(member.regex) if member.regex else None
    return frozenset(member.topics) if resolved is None else resolved.topics.union(member.topics)


def topic_ids(names: Iterable[str], topics: Topics) -> frozenset[bytes]:
    """Of those that exist."""
    return frozenset(topic_id for name in names if (topic_id := topics.id_of(name)) is not None)
