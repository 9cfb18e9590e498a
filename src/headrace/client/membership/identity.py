"""Who a member is at a moment: its commits carry it, so that the group can refuse those of others."""

from typing import NamedTuple

NO_EPOCH = -1


class Identity(NamedTuple):
    member_id: str = ""
    epoch: int = NO_EPOCH  # the generation of a classic group, or the member's epoch
    instance_id: str | None = None


NOBODY = Identity()  # commits of a consumer that chose its partitions by itself
