"""What all decisions about groups share: one partition of `__consumer_offsets`, and the world around it."""

from __future__ import annotations

from headrace.base.dice import Dice
from headrace.machines.coordination import Topics
from headrace.machines.groups.group import Group
from headrace.machines.groups.offsets import Offsets
from headrace.machines.groups.settings import GroupSettings
from headrace.machines.groups.timers import Timers


class Shard:
    def __init__(self, settings: GroupSettings, topics: Topics, dice: Dice) -> None:
        self.settings = settings
        self.topics = topics
        self.dice = dice
        self.timers = Timers()
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    def fresh_member_id(self, prefix: str) -> str:
        """The prefix and a random (version 4) UUID in its usual text form."""
        raw = bytearray(self.dice.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
