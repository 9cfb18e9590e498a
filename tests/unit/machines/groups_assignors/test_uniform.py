"""Exact assignments of `uniform`: who keeps what, who gives, and in which order the rest is handed out."""

from __future__ import annotations

from headrace.machines.groups.assignors.model import Subscriber, Target, subscribers_by_topic
from headrace.machines.groups.assignors.uniform import assign_uniformly

A, B = b"a" * 16, b"b" * 16


def members(**wishes: tuple[frozenset[bytes], Target]) -> dict[str, Subscriber]:
    return {name: Subscriber(topics, current) for name, (topics, current) in wishes.items()}


ONLY_A, ONLY_B, BOTH = frozenset({A}), frozenset({B}), frozenset({A, B})


def test_without_members_nothing_is_assigned() -> None:
    assert assign_uniformly({}, {A: 3}) == {}


def test_a_new_group_gets_partitions_in_their_order() -> None:
    group = members(m1=(BOTH, {}), m2=(BOTH, {}), m3=(BOTH, {}))
    assert assign_uniformly(group, {A: 4, B: 3}) == {
        "m1": {A: (0, 1, 2)},
        "m2": {A: (3,), B: (0,)},
        "m3": {B: (1, 2)},
    }


def test_a_newcomer_gets_the_least_that_others_have_too_much() -> None:
    group = members(m1=(ONLY_A, {A: (0, 1, 2)}), m2=(ONLY_A, {A: (3, 4)}), m3=(ONLY_A, {}))
    assert assign_uniformly(group, {A: 5}) == {"m1": {A: (0, 1)}, "m2": {A: (3, 4)}, "m3": {A: (2,)}}
    group = members(m1=(ONLY_A, {A: (0, 1, 2)}), m2=(ONLY_A, {A: (3, 4, 5)}), m3=(ONLY_A, {}))
    assert assign_uniformly(group, {A: 6}) == {"m1": {A: (0, 1)}, "m2": {A: (3, 4)}, "m3": {A: (2, 5)}}


def test_only_as_many_as_remain_get_one_more() -> None:
    group = members(
        m1=(ONLY_A, {}), m2=(ONLY_A, {A: (0, 1)}), m3=(ONLY_A, {A: (2, 3)}), m4=(ONLY_A, {A: (4,)})
    )
    assert assign_uniformly(group, {A: 6}) == {
        "m1": {A: (5,)},
        "m2": {A: (0, 1)},
        "m3": {A: (2, 3)},
        "m4": {A: (4,)},
    }


def test_what_two_claim_stays_with_the_first_and_what_is_gone_with_nobody() -> None:
    group = members(m1=(ONLY_A, {A: (0, 1), B: (0,)}), m2=(ONLY_A, {A: (1, 7)}))
    assert assign_uniformly(group, {A: 4}) == {"m1": {A: (0, 1)}, "m2": {A: (2, 3)}}


def test_with_different_wishes_topics_of_few_come_first() -> None:
    group = members(m1=(BOTH, {}), m2=(ONLY_B, {}), m3=(BOTH, {}))
    assert assign_uniformly(group, {A: 2, B: 4}) == {
        "m1": {A: (0,), B: (1,)},
        "m2": {B: (0, 2)},
        "m3": {A: (1,), B: (3,)},
    }


def test_with_different_wishes_the_most_loaded_give_to_the_least() -> None:
    held = {A: (0, 1, 2, 3), B: (0, 1)}
    group = members(m1=(BOTH, held), m2=(ONLY_A, {}), m3=(ONLY_A, {}), m4=(ONLY_B, {}))
    assert assign_uniformly(group, {A: 4, B: 2}) == {
        "m1": {A: (0, 1)},
        "m2": {A: (3,)},
        "m3": {A: (2,)},
        "m4": {B: (0, 1)},
    }


def test_two_that_give_are_levelled_in_turn() -> None:
    group = members(
        m1=(BOTH, {A: (0, 1, 2, 3, 4)}),
        m2=(ONLY_A, {A: (5, 6, 7, 8)}),
        m3=(ONLY_A, {}),
        m4=(ONLY_A, {}),
    )
    assert assign_uniformly(group, {A: 9, B: 1}) == {
        "m1": {A: (0, 1), B: (0,)},
        "m2": {A: (5, 6, 7)},
        "m3": {A: (2, 4)},
        "m4": {A: (3, 8)},
    }


def test_who_wants_a_topic_in_the_order_of_ids_and_members() -> None:
    group = members(m2=(ONLY_B, {}), m1=(BOTH, {}))
    assert list(subscribers_by_topic(group).items()) == [(A, ["m1"]), (B, ["m2", "m1"])]
