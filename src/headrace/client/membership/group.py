"""A consumer's whole part in its group as one machine: who coordinates, what is ours, how far we have read.

The shell sends what `requests` gives, hands every answer to `answered`, wakes the machine at `deadline`, and
tells the application what `take_events` says.
"""

from headrace.base.dice import Dice
from headrace.base.time import Instant
from headrace.client.membership.classic import ClassicMembership
from headrace.client.membership.coordinator import Coordinator
from headrace.client.membership.events import MembershipEvent
from headrace.client.membership.mailbox import Answer, Mailbox, Outgoing
from headrace.client.membership.settings import GroupSettings
from headrace.client.membership.subscription import Subscription
from headrace.client.membership.topics import TopicWatch


class Group:
    def __init__(self, settings: GroupSettings, dice: Dice) -> None:
        self.settings = settings
        self._events: list[MembershipEvent] = []
        self._mailbox = Mailbox()
        self._coordinator = Coordinator(
            settings.group_id, self._mailbox, dice, request_timeout_s=settings.request_timeout_s
        )
        self.topics = TopicWatch(
            self._mailbox,
            dice,
            max_age_s=settings.metadata_max_age_s,
            request_timeout_s=settings.request_timeout_s,
            allow_auto_create=settings.allow_auto_create_topics,
        )
        self.membership = ClassicMembership(
            settings, self._mailbox, self._coordinator, self.topics, dice, self._events.append
        )

    # --- the shell -----------------------------------------------------------------------------------------

    def requests(self, now: Instant) -> list[Outgoing]:
        """What has to be sent now."""
        self.membership.advance(now)
        self._coordinator.advance(now)
        self.topics.advance(now)
        return self._mailbox.take()

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None:
        self._mailbox.answered(now, ticket, answer)

    def deadline(self) -> Instant:
        return min(self.membership.deadline(), self._coordinator.deadline(), self.topics.deadline())

    def take_events(self) -> list[MembershipEvent]:
        events = list(self._events)
        self._events.clear()
        return events

    # --- the application -----------------------------------------------------------------------------------

    def subscribe(self, now: Instant, subscription: Subscription) -> None:
        self.membership.subscribe(now, subscription)

    def polled(self, now: Instant) -> None:
        self.membership.polled(now)

    def acknowledge(self, now: Instant) -> None:
        self.membership.acknowledge(now)

    def leave(self, now: Instant) -> None:
        self.membership.leave(now)
