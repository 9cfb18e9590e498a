"""Which member of a group holds which partitions, read from the group coordinator."""

from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.groups import Groups
from headrace.node.node import Node


def held(node: Node, group_id: str) -> dict[str, list[tuple[bytes, int]]]:
    """Topic id and number of each partition a member has or is to give up; nothing of classic groups, whose
    members the coordinator gives what their leader says.
    """
    for shard in node.broker.groups.loaded_shards():
        assert isinstance(shard.machine, Groups)
        group = shard.machine.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return {
                name: [
                    (topic_id, number)
                    for partitions in (member.assigned, member.revoking)
                    for topic_id, numbers in partitions.items()
                    for number in numbers
                ]
                for name, member in group.members.items()
            }
    return {}
