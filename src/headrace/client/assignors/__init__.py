"""Client-side assignors of classic groups: the leader's answer to "who reads what".

Pure functions of the members' subscriptions, of what they own, and of the topics' sizes. Every partition of
a topic that somebody subscribed to goes to exactly one of its subscribers; only `cooperative-sticky` holds a
partition back for one rebalance, while its owner gives it up. An assignor of one's own is an object with a
`name` and `assign`; see `Assignor`.
"""

from headrace.client.assignors.cooperative import CooperativeStickyAssignor
from headrace.client.assignors.model import Assignment, Assignor, GroupMember
from headrace.client.assignors.range import RangeAssignor
from headrace.client.assignors.roundrobin import RoundRobinAssignor
from headrace.client.assignors.sticky import StickyAssignor

ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
]
