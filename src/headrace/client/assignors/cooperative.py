"""The `cooperative-sticky` assignor: the sticky balance, reached in two rebalances that stop nobody.

Members keep reading what they own while they join. A partition that is to move is given to nobody at first;
its owner sees that it is missing, gives it up and joins again, and that rebalance hands it to the other
(KIP-429). Until members of older versions are gone, the generation travels in the user data, too:

    generation: int32
"""

from collections.abc import Iterable, Mapping

from headrace.client.assignors.model import NO_GENERATION, Assignment, GroupMember
from headrace.client.assignors.sticky import Claim, share
from headrace.client.cluster import TopicPartition


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    is_cooperative = True

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assignment:
        claims = {member_id: _claim(member) for member_id, member in members.items()}
        balanced = share(members, partitions, claims)
        owners: dict[TopicPartition, set[str]] = {}
        for member_id, claim in claims.items():
            for at in claim.partitions:
                owners.setdefault(at, set()).add(member_id)
        return {
            member_id: [at for at in wanted if not owners.get(at, set()) - {member_id}]
            for member_id, wanted in balanced.items()
        }

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        return generation.to_bytes(4, "big", signed=True)


def _claim(member: GroupMember) -> Claim:
    generation, user_data = member.generation, member.user_data
    if generation == NO_GENERATION and user_data is not None and len(user_data) >= 4:
        generation = int.from_bytes(user_data[:4], "big", signed=True)
    return Claim(member.owned, generation)
