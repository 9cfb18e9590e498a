"""Ids that the coordinator gives to members."""

from __future__ import annotations

from uuid import UUID

from harness.group_shard import GroupShard
from headrace.machines.groups.groups import Groups


class Fixed:
    """Randomness that is known."""

    def __init__(self, *given: int) -> None:
        self._given = given

    def randbytes(self, count: int, /) -> bytes:
        return bytes(self._given * count)[:count]


def test_all_bits_are_random_but_those_that_say_what_kind_of_uuid_it_is() -> None:
    given = GroupShard()
    ids = []
    for byte in (0x00, 0xFF):
        machine = Groups(given.settings, given.topics, Fixed(byte))  # type: ignore[arg-type]
        ids.append(machine.fresh_member_id("consumer"))
    assert ids == [
        "consumer-00000000-0000-4000-8000-000000000000",
        "consumer-ffffffff-ffff-4fff-bfff-ffffffffffff",
    ]


def test_each_byte_of_the_randomness_has_its_place() -> None:
    given = GroupShard()
    machine = Groups(given.settings, given.topics, Fixed(*range(100, 116)))  # type: ignore[arg-type]
    expected = UUID(bytes=bytes(range(100, 116)), version=4)
    assert machine.fresh_member_id("consumer") == f"consumer-{expected}"
