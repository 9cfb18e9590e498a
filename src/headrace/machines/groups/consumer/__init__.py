"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and members move to their targets one
by one.

`heartbeat` is the whole protocol of its members; `classic_members` serves members that still use the classic
protocol.
"""

from headrace.machines.groups.consumer import classic_members
from headrace.machines.groups.consumer.departure import time_over
from headrace.machines.groups.consumer.group import CONSUMER_GROUP_KEYS, ConsumerGroup
from headrace.machines.groups.consumer.heartbeat import heartbeat
from headrace.machines.groups.consumer.patterns import MaySee
from headrace.machines.groups.consumer.timing import TIMERS, start_timers

__all__ = [
    "CONSUMER_GROUP_KEYS",
    "TIMERS",
    "ConsumerGroup",
    "MaySee",
    "classic_members",
    "heartbeat",
    "start_timers",
    "time_over",
]
