"""What judges let pass and what they object to, by hand: cases that a seed has shown."""

from __future__ import annotations

import pytest

from headrace.simulator.history import Assigned, JoinAsked, PartitionKey, Violation
from headrace.simulator.judges.one_owner_per_generation import OneOwnerPerGeneration

SOURCE = PartitionKey("source", bytes(16), 2)


def test_a_group_that_may_have_changed_its_protocol_may_count_its_generations_again() -> None:
    """All members were fenced, a classic one began to join, and nobody heard of its generation: the next
    member of the new protocol got generation 2 once more.
    """
    judge = OneOwnerPerGeneration()
    judge.see(JoinAsked("plain", is_classic=False))
    judge.see(Assigned("plain", "first", 2, (SOURCE,), is_classic=False))
    judge.see(JoinAsked("plain", is_classic=True))
    judge.see(Assigned("plain", "second", 2, (SOURCE,), is_classic=False))


def test_a_partition_has_one_owner_in_a_generation() -> None:
    judge = OneOwnerPerGeneration()
    judge.see(JoinAsked("plain", is_classic=False))
    judge.see(Assigned("plain", "first", 2, (SOURCE,), is_classic=False))
    with pytest.raises(Violation):
        judge.see(Assigned("plain", "second", 2, (SOURCE,), is_classic=False))
