"""Server-side assignors of the consumer protocol (KIP-848): who shall have which partitions.

Pure functions of the members' subscriptions, of what they have today, and of the topics' sizes. Every
partition of a topic that somebody subscribed to is given to exactly one of its subscribers. The same input
gives the same answer: nothing depends on the order of a set.
"""

from headrace.machines.groups.assignors.model import Assignor, Subscriber, Target
from headrace.machines.groups.assignors.range import assign_ranges
from headrace.machines.groups.assignors.uniform import assign_uniformly

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}

__all__ = ["ASSIGNORS", "Assignor", "Subscriber", "Target"]
