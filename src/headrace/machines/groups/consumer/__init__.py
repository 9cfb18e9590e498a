"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and members move to their targets one
by one.

`heartbeat` is the whole protocol of its members; `classic_members` serves those that still speak the classic
one.
"""

from headrace.machines.groups.consumer import classic_members
from headrace.machines.groups.consumer.describe import describe
from headrace.machines.groups.consumer.expiry import TIMERS, start_timers, time_over
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.heartbeat import heartbeat
from headrace.machines.groups.consumer.patterns import MaySee
from headrace.machines.groups.consumer.replay import CONSUMER_GROUP_KEYS, replay

__all__ = [
    "CONSUMER_GROUP_KEYS",
    "TIMERS",
    "ConsumerGroup",
    "MaySee",
    "classic_members",
    "describe",
    "heartbeat",
    "replay",
    "start_timers",
    "time_over",
]
