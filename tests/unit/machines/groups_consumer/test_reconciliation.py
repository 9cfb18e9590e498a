"""Every step that a member can make towards its target, as a table."""

from __future__ import annotations

import pytest

from headrace.machines.groups.consumer.errors import GroupError
from headrace.machines.groups.consumer.member import Member, MemberState, Partitions
from headrace.machines.groups.consumer.reconciliation import reconcile
from headrace.protocol.errors import ErrorCode

ORDERS, BILLS = b"orders".ljust(16), b"bills".ljust(16)
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)
OWNED_BY = "other"


def orders(*numbers: int, since: int = 5) -> dict[bytes, dict[int, int]]:
    return {ORDERS: dict.fromkeys(numbers, since)} if numbers else {}


def member(
    state: MemberState, epoch: int, assigned: Partitions, revoking: Partitions | None = None
) -> Member:
    return Member(
        "me", epoch=epoch, previous_epoch=4, state=state, assigned=assigned, revoking=revoking or {}
    )


def after(state: MemberState, epoch: int, assigned: Partitions, revoking: Partitions | None = None) -> Member:
    return Member(
        "me", epoch=epoch, previous_epoch=5, state=state, assigned=assigned, revoking=revoking or {}
    )


@pytest.mark.parametrize(
    ("before", "target", "owned", "held_by_others", "expected"),
    [
        # nothing to give up, all free
        (member(STABLE, 5, orders(0)), (0, 1), None, (), after(STABLE, 6, {ORDERS: {0: 5, 1: 6}})),
        # the same target in a new epoch
        (member(STABLE, 5, orders(0)), (0,), None, (), after(STABLE, 6, orders(0))),
        # some are free, one is not
        (
            member(STABLE, 5, orders(0)),
            (0, 1, 2),
            None,
            (2,),
            after(UNRELEASED, 6, {ORDERS: {0: 5, 1: 6}}),
        ),
        # nothing is free
        (member(STABLE, 5, {}), (1,), None, (1,), after(UNRELEASED, 6, {})),
        # something to give up, and it does not say that it has: it gets nothing meanwhile
        (
            member(STABLE, 5, orders(0, 1)),
            (1, 2),
            None,
            (),
            after(UNREVOKED, 5, orders(1), orders(0)),
        ),
        # it owns it
        (
            member(STABLE, 5, orders(0, 1)),
            (1,),
            {ORDERS: [0]},
            (),
            after(UNREVOKED, 5, orders(1), orders(0)),
        ),
        # it does not own it any more: the step is made at once
        (member(STABLE, 5, orders(0, 1)), (1,), {ORDERS: [1]}, (), after(STABLE, 6, orders(1))),
        (member(STABLE, 5, orders(0, 1)), (1,), {}, (), after(STABLE, 6, orders(1))),
        # still to give up
        (
            member(UNREVOKED, 5, orders(1), orders(0)),
            (1, 2),
            None,
            (),
            member(UNREVOKED, 5, orders(1), orders(0)),
        ),
        (
            member(UNREVOKED, 5, orders(1), orders(0)),
            (1, 2),
            {ORDERS: [0, 1]},
            (),
            member(UNREVOKED, 5, orders(1), orders(0)),
        ),
        # given up: on to the target
        (
            member(UNREVOKED, 5, orders(1), orders(0)),
            (1, 2),
            {ORDERS: [1]},
            (),
            after(STABLE, 6, {ORDERS: {1: 5, 2: 6}}),
        ),
        # given up, and meanwhile it shall have it again: nobody else can have taken it
        (
            member(UNREVOKED, 5, orders(1), orders(0)),
            (0, 1),
            {ORDERS: [1]},
            (0,),
            after(STABLE, 6, {ORDERS: {0: 6, 1: 5}}),
        ),
        # given up, and meanwhile there is more to give up
        (
            member(UNREVOKED, 5, orders(1), orders(0)),
            (2,),
            {ORDERS: [1]},
            (),
            after(UNREVOKED, 5, {}, orders(1)),
        ),
        # given up, and what it shall have is not free
        (
            member(UNREVOKED, 5, {}, orders(0)),
            (2,),
            {},
            (2,),
            after(UNRELEASED, 6, {}),
        ),
        # what it waited for is free
        (member(UNRELEASED, 5, orders(0)), (0, 1), None, (), after(STABLE, 6, {ORDERS: {0: 5, 1: 6}})),
        # a newer target wants something back while it waits
        (
            member(UNRELEASED, 5, orders(0)),
            (1,),
            None,
            (1,),
            after(UNREVOKED, 5, {}, orders(0)),
        ),
    ],
)
def test_step(
    before: Member,
    target: tuple[int, ...],
    owned: dict[bytes, list[int]] | None,
    held_by_others: tuple[int, ...],
    expected: Member,
) -> None:
    owners = {(ORDERS, number): OWNED_BY for number in held_by_others}
    step = reconcile(
        before,
        6,
        {ORDERS: target},
        subscribed=frozenset({ORDERS}),
        has_subscription_changed=False,
        owned=owned,
        owners=owners,
    )
    assert step == expected


def test_at_its_target_a_member_stays() -> None:
    stays = member(STABLE, 6, orders(0))
    step = reconcile(
        stays,
        6,
        {ORDERS: (0,)},
        subscribed=frozenset({ORDERS}),
        has_subscription_changed=False,
        owned=None,
        owners={},
    )
    assert step is stays


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        (None, after(UNREVOKED, 5, orders(0), {BILLS: {0: 5}})),
        ({BILLS: [0]}, after(UNREVOKED, 5, orders(0), {BILLS: {0: 5}})),
        ({ORDERS: [0]}, after(STABLE, 5, orders(0))),
    ],
)
def test_what_is_not_subscribed_any_more_goes_before_the_next_target(
    owned: dict[bytes, list[int]] | None, expected: Member
) -> None:
    has_both = member(STABLE, 5, orders(0) | {BILLS: {0: 5}})
    step = reconcile(
        has_both,
        5,
        {ORDERS: (0,), BILLS: (0,)},
        subscribed=frozenset({ORDERS}),
        has_subscription_changed=True,
        owned=owned,
        owners={(ORDERS, 0): "me", (BILLS, 0): "me"},
    )
    assert step == expected


def test_an_old_target_gives_nothing_that_is_not_subscribed() -> None:
    step = reconcile(
        member(STABLE, 5, {}),
        6,
        {ORDERS: (0,), BILLS: (0,)},
        subscribed=frozenset({ORDERS}),
        has_subscription_changed=True,
        owned=None,
        owners={},
    )
    assert step == after(STABLE, 6, orders(0, since=6))


def test_a_state_of_a_newer_broker_is_left_through_a_new_beginning() -> None:
    unknown = member(MemberState(77), 5, orders(0))
    assert unknown.state is MemberState.UNKNOWN

    def step(owned: dict[bytes, list[int]] | None) -> Member:
        return reconcile(
            unknown,
            6,
            {ORDERS: (0, 1)},
            subscribed=frozenset({ORDERS}),
            has_subscription_changed=False,
            owned=owned,
            owners={},
        )

    for owned in (None, {ORDERS: [0]}):
        with pytest.raises(GroupError) as refused:
            step(owned)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert step({}) == after(STABLE, 6, {ORDERS: {0: 5, 1: 6}})
