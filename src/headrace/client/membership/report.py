"""What the broker already knows of a member, so that a heartbeat says only what is new (KIP-848).

A field that is left out means "as before". What a lost heartbeat said may or may not have been heard: after
one, everything is said again.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.membership.settings import GroupSettings
from headrace.client.membership.subscription import Subscription
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

Owned = Mapping[bytes, list[int]]  # partition numbers by topic id


class _Said(NamedTuple):
    subscription: Subscription | None
    owned: Owned


class Report:
    """said --heard--> known; what is known is not said again until it changes or is forgotten."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._said: _Said | None = None
        self._known: _Said | None = None
        self._ever_said_pattern = False

    def is_said(self, subscription: Subscription | None, owned: Owned) -> bool:
        """Whether a heartbeat has gone out with it that was not lost, as far as we know."""
        return self._said == _Said(subscription, owned)

    def is_told(self, subscription: Subscription | None, owned: Owned) -> bool:
        return self._known == _Said(subscription, owned)

    def heard(self) -> None:
        """The last heartbeat was answered."""
        self._known = self._said

    def forget(self) -> None:
        self._known = self._said = None

    def heartbeat(
        self, member_id: str, epoch: int, *, subscription: Subscription | None, owned: Owned
    ) -> ConsumerGroupHeartbeatRequest:
        known = self._known
        self._said = _Said(subscription, owned)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._settings.instance_id,
        )
        if known is None:
            request.rack_id = self._settings.rack
            request.rebalance_timeout_ms = int(self._settings.max_poll_interval_s * 1000)
            request.server_assignor = self._settings.server_assignor
        if subscription is not None and (known is None or known.subscription != subscription):
            self._subscribe(request, subscription)
        if known is None or known.owned != owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in owned.items()
            ]
        return request

    def _subscribe(self, request: ConsumerGroupHeartbeatRequest, subscription: Subscription) -> None:
        request.subscribed_topic_names = sorted(subscription.topics)
        if subscription.broker_pattern is not None:
            request.subscribed_topic_regex = subscription.broker_pattern
            self._ever_said_pattern = True
        elif self._ever_said_pattern:
            request.subscribed_topic_regex = ""  # takes the pattern back
