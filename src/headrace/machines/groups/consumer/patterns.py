"""Subscriptions by pattern: the topics that match a group's regular expressions, and when they are resolved
again.

Patterns are RE2's: matching takes time linear in the name, whatever a client sends (with Python's `re` one
request could stop the broker). A pattern is resolved with the rights of the member that sent it: it finds the
topics that this member may describe. It is resolved again after topics were created or deleted, though not
after every change, and periodically, because rights may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.errors import GroupError
from headrace.machines.groups.consumer.group import ConsumerGroup, ResolvedRegex
from headrace.machines.groups.consumer.member import Member
from headrace.protocol.coordinator_records import Record
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    import re2

    from headrace.machines.groups.groups import Groups

# Whether the member that asks may know of a topic.
MaySee = Callable[[str], bool]

# How long the topics of a pattern stay as they are while topics come and go: matching all names for every
# group at every new topic would be felt by a cluster that creates many. Kafka's figure.
REFRESH_MS_MIN = 10_000

# Memory of one compiled pattern; a pattern that needs more is refused as invalid.
PATTERN_BYTES_MAX = 1 << 20
# Memory for matching with it: RE2 wants room for some twenty states of its automaton, each up to 4 bytes per
# instruction (16 bytes) of the pattern, and would match nothing without. RE2's own default.
MATCHING_BYTES_MAX = 8 << 20


@cache
def _options(bytes_max: int) -> re2.Options:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = bytes_max
    return options


def is_refresh_due(machine: Groups, now: Now, group: ConsumerGroup) -> bool:
    age_ms = (now.mono - group.patterns_at) * 1000
    if group.patterns_version != machine.topics.version:
        return age_ms >= REFRESH_MS_MIN
    return age_ms >= machine.settings.group_consumer_regex_refresh_interval_ms


def current_patterns(
    machine: Groups,
    now: Now,
    group: ConsumerGroup,
    former: Member | None,
    member: Member,
    may_see: MaySee | None,
    written: list[Record],
) -> Mapping[str, ResolvedRegex]:
    """The patterns that the group has with this member in place of the former, and the topics behind them."""
    if not member.regex and not group.regexes:
        return group.regexes
    regexes = dict(group.regexes)
    abandoned = former.regex if former is not None and former.regex != member.regex else ""
    if abandoned and group.regex_counts[abandoned] == 1 and regexes.pop(abandoned, None) is not None:
        written.append(records.regex_gone(group.group_id, abandoned))
    if may_see is None:
        return regexes
    wanted = {member.regex} - {""} - set(regexes)
    is_due = is_refresh_due(machine, now, group)
    if is_due:
        wanted.update(regexes)
    version = machine.topics.version
    for regex in sorted(wanted):
        matches = compile_regex(regex)
        topics = frozenset(name for name in machine.topics.names() if matches(name) and may_see(name))
        known = regexes.get(regex)
        if known is None or known.topics != topics:
            regexes[regex] = ResolvedRegex(topics, version, now.wall_ms)
            written.append(records.resolved_regex(group.group_id, regex, topics, version, now.wall_ms))
    if is_due and regexes == group.regexes:
        # Only now: what is still to be written may yet be refused.
        group.patterns_version, group.patterns_at = version, now.mono
    return regexes


def compile_regex(regex: str) -> Callable[[str], object]:
    """A function that is true of names that match as a whole; GroupError if it is not a pattern."""
    import re2  # 2 MB of memory, which a broker without patterns saves

    try:
        re2.compile(regex, options=_options(PATTERN_BYTES_MAX))
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "it cannot be compiled"
        message = f"the subscribed pattern is not a regular expression of RE2: {reason}"
        raise GroupError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error
    # A set of one pattern answers five times as fast as the pattern itself: no match objects are made.
    patterns = re2.Set.FullMatchSet(_options(MATCHING_BYTES_MAX))
    patterns.Add(regex)
    patterns.Compile()
    matches: Callable[[str], object] = patterns.Match
    return matches
