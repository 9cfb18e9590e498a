"""Server-side assignors of the consumer protocol (KIP-848): the target assignment of each member.

They are pure functions of the members' subscriptions, their current partitions, and the topics' sizes. Every
partition of a topic with subscribers is assigned to exactly one of them. The same input gives the same
result: nothing depends on the order of a set.
"""

from headrace.machines.groups.assignors.model import Assignor, Subscriber, Target
from headrace.machines.groups.assignors.range import assign_ranges
from headrace.machines.groups.assignors.uniform import assign_uniformly

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}

__all__ = ["ASSIGNORS", "Assignor", "Subscriber", "Target"]
