"""Reconciliation of one member with its target: which partitions it gives up, gets now, or waits for.

Invariant: a partition is assigned to a member only when no other member holds it, and a member holds a
partition until it reports that it no longer owns it (or is removed from the group).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.machines.groups.assignors import Target
from headrace.machines.groups.consumer.errors import GroupError
from headrace.machines.groups.consumer.member import NO_PARTITIONS, Member, MemberState, Partitions
from headrace.protocol.errors import ErrorCode

Owned = Mapping[bytes, Collection[int]]


def reconcile(
    member: Member,
    target_epoch: int,
    target: Target,
    *,
    subscribed: frozenset[bytes],
    has_subscription_changed: bool,
    owned: Owned | None,
    owners: Mapping[tuple[bytes, int], str],
) -> Member:
    """The member after this step, equal to what it was if there is nothing to do.

    `owned` is what the member says it owns, None if it says nothing; `subscribed` the ids of its topics.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return _drop_unsubscribed(member, subscribed, owned) if has_subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(owned, member.revoking):
            return _drop_unsubscribed(member, subscribed, owned) if has_subscription_changed else member
        case MemberState.UNKNOWN if owned is None or owned:
            raise GroupError(
                ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is not known: it must join again"
            )
        case _:
            return _towards(member, target_epoch, target, subscribed, owned, owners)


def _towards(
    member: Member,
    target_epoch: int,
    target: Target,
    subscribed: frozenset[bytes],
    owned: Owned | None,
    owners: Mapping[tuple[bytes, int], str],
) -> Member:
    # A target may be older than the member's subscription: it never gets what it does not want any more.
    wanted = {topic: numbers for topic, numbers in target.items() if topic in subscribed}
    kept: dict[bytes, Mapping[int, int]] = {}
    revoked: dict[bytes, Mapping[int, int]] = {}
    for topic, epochs in member.assigned.items():
        stays = frozenset(wanted.get(topic, ()))
        if stays.issuperset(epochs):
            kept[topic] = epochs
            continue
        if still := {number: epoch for number, epoch in epochs.items() if number in stays}:
            kept[topic] = still
        revoked[topic] = {number: epoch for number, epoch in epochs.items() if number not in stays}
    if revoked and _owns_any(owned, revoked):
        return member.at_epoch(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)

    is_waiting = False
    assigned = dict(kept)
    for topic, numbers in wanted.items():
        had = kept.get(topic, {})
        own = member.revoking.get(topic, {})
        given = dict(had)
        for number in numbers:
            if number in had:
                continue
            if (topic, number) in owners and number not in own:
                is_waiting = True
            else:
                given[number] = target_epoch
        if len(given) > len(had):
            assigned[topic] = given
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return member.at_epoch(target_epoch, state, assigned, NO_PARTITIONS)


def _drop_unsubscribed(member: Member, subscribed: frozenset[bytes], owned: Owned | None) -> Member:
    """Takes away what it does not subscribe to any more, before the next target does."""
    if subscribed.issuperset(member.assigned):
        return member
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic in subscribed}
    revoked: dict[bytes, Mapping[int, int]] = dict(member.revoking)
    for topic, epochs in member.assigned.items():
        if topic not in subscribed:
            revoked[topic] = {**revoked.get(topic, {}), **epochs}
    if _owns_any(owned, revoked):
        return member.at_epoch(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    return replace(member, previous_epoch=member.epoch, assigned=kept)


def _owns_any(owned: Owned | None, partitions: Partitions) -> bool:
    """A member that does not say what it owns may own all of it."""
    if owned is None:
        return True
    return any(
        number in partitions[topic] for topic in owned if topic in partitions for number in owned[topic]
    )
