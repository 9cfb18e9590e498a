"""What a group subscribes to, held against the topics that exist: patterns, and the hash that tells of
change.

Patterns are RE2's: matching takes time linear in the name, whatever a client sends (Python's `re` would let
one request stop the broker).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

import re2

from headrace.machines.coordination import Topics
from headrace.machines.groups.consumer.group import ResolvedRegex
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.refusal import Refused
from headrace.protocol.errors import ErrorCode

# Memory that RE2 may spend on one compiled pattern; a pattern that needs more is refused as invalid.
REGEX_BYTES_MAX = 1 << 20

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = REGEX_BYTES_MAX


def compile_regex(regex: str) -> Callable[[str], object]:
    """A function that is true of names that match as a whole; Refused if it is no pattern."""
    try:
        matches: Callable[[str], object] = re2.compile(regex, options=_OPTIONS).fullmatch
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "it cannot be compiled"
        message = f"the subscribed pattern is not a regular expression of RE2: {reason}"
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error
    return matches


def resolve(regex: str, topics: Topics) -> frozenset[str]:
    matches = compile_regex(regex)
    return frozenset(name for name in topics.names() if matches(name))


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Differs whenever one of the topics comes, goes, grows, or is made anew; 0 if none exists."""
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
