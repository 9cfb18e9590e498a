"""A consumer's group as one machine: coordinator, membership, commits and committed offsets.

The shell sends the requests that `requests` returns, passes every answer to `answered`, calls `requests`
again at `deadline`, and passes the events of `take_events` to the application. After each call of the
application it asks for requests again. It delivers events before it accepts a commit, so that the application
does not commit partitions that it has lost.

JoinGroup and SyncGroup are answered late, and a broker answers in order: the shell gives them a connection
apart from commits.
"""

from collections.abc import Iterable, Mapping

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import TopicPartition
from headrace.client.coordinator import Coordinator
from headrace.client.errors import ClientError
from headrace.client.membership.classic import ClassicMembership
from headrace.client.membership.consumer import ConsumerMembership
from headrace.client.membership.events import CommitEnded, CommittedOffset, GroupEvent, Lost, Partitions
from headrace.client.membership.offsets import AutoCommit, Commits, OffsetFetches
from headrace.client.membership.subscription import SubscribedTopics, Subscription
from headrace.client.metadata import Metadata
from headrace.client.session import Answer, Outgoing, RequestQueue
from headrace.client.settings.consumer import GroupProtocol, GroupSettings


class Group:
    """Invariant: `_closing` is acknowledged by the application and still ours, until its last commit ends."""

    def __init__(
        self,
        settings: GroupSettings,
        rng: Randomness,
        request_queue: RequestQueue | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """`requests` takes all that is in the request_queue, also what others have posted there."""
        self.settings = settings
        self._events: list[GroupEvent] = []
        self._next_number = 0
        self._closing: Partitions = frozenset()
        self._losses = 0
        self._request_queue = request_queue or RequestQueue()
        self._coordinator = Coordinator(
            settings.group_id, self._request_queue, rng, request_timeout_s=settings.request_timeout_s
        )
        self.metadata = metadata or Metadata(
            self._request_queue,
            rng,
            request_timeout_s=settings.request_timeout_s,
            max_age_s=settings.metadata_max_age_s,
            creates_topics=settings.allow_auto_create_topics,
        )
        self.topics = SubscribedTopics(
            self.metadata, excludes_internal=settings.excludes_internal_topics, tell=self._tell
        )
        kind = ClassicMembership if settings.protocol is GroupProtocol.CLASSIC else ConsumerMembership
        self.membership: ClassicMembership | ConsumerMembership = kind(
            settings, self._request_queue, self._coordinator, self.topics, rng, self._tell
        )
        self._commits = Commits(
            settings,
            self._request_queue,
            self._coordinator,
            rng,
            identity=self.membership.identity,
            may_commit=lambda at: self.membership.is_out or at in self.membership.owned,
            refused=self.membership.refused,
        )
        self._offset_fetches = OffsetFetches(
            settings,
            self._request_queue,
            self._coordinator,
            rng,
            identity=self.membership.reader_identity,
            tell=self._tell,
        )
        self._auto_commit: AutoCommit | None = None
        if settings.auto_commit_interval_s is not None:
            self._auto_commit = AutoCommit(
                self._commits,
                self._tell,
                interval_s=settings.auto_commit_interval_s,
                timeout_s=settings.request_timeout_s,
            )

    # --- the shell -----------------------------------------------------------------------------------------

    def requests(self, now: Instant) -> list[Outgoing]:
        """What has to be sent now."""
        if self._auto_commit is not None:
            self._auto_commit.advance(now)
        self._commits.advance(now)  # before the membership: what it gives up is to be committed first
        self.membership.advance(now)
        self._offset_fetches.advance(now)
        self._coordinator.advance(now)
        self.metadata.advance(now)
        return self._request_queue.take()

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None:
        self._request_queue.answered(now, ticket, answer)

    def deadline(self) -> Instant:
        return min(
            self.membership.deadline(),
            self._commits.deadline(),
            NEVER if self._auto_commit is None else self._auto_commit.deadline(),
            self._offset_fetches.deadline(),
            self._coordinator.deadline(),
            self.metadata.deadline(),
        )

    def take_events(self) -> list[GroupEvent]:
        events = list(self._events)
        self._events.clear()
        return events

    def _tell(self, event: GroupEvent) -> None:
        if isinstance(event, Lost):
            self._losses += 1
            self._forget(event.partitions)
            told, self._closing = event.partitions - self._closing, frozenset()
            if told:
                self._events.append(Lost(told, event.reason))
        else:
            self._events.append(event)

    # --- the application -----------------------------------------------------------------------------------

    def subscribe(self, now: Instant, subscription: Subscription) -> None:
        self.membership.subscribe(now, subscription)

    def polled(self, now: Instant) -> None:
        """The application has called `poll`: it is not stuck."""
        self.membership.polled(now)

    def acknowledge(self, now: Instant) -> None:
        """The application is done with all that it was told is revoked; its last positions are known."""
        partitions = self.membership.revoking - self._closing
        if not partitions:
            return
        self._closing |= partitions
        losses = self._losses

        def saved(now: Instant) -> None:
            if losses == self._losses:  # otherwise all of this is over, and may have begun again
                self._give_up(now, partitions)

        # The group must not go on before what was read is committed: afterwards nobody would take it from us.
        if self._auto_commit is not None:
            self._auto_commit.save(now, partitions, saved)
        else:
            self._commits.commit(now, {}, self.settings.request_timeout_s, lambda now, _: saved(now))

    def _give_up(self, now: Instant, partitions: Partitions) -> None:
        self._closing -= partitions
        self._forget(partitions)
        self.membership.acknowledge(now, partitions)

    def _forget(self, partitions: Partitions) -> None:
        self._commits.given_up(partitions)
        if self._auto_commit is not None:
            self._auto_commit.given_up(partitions)

    def leave(self, now: Instant) -> None:
        """Gives everything up and leaves; `Left` says when that is done."""
        self.membership.leave(now)

    def commit(
        self,
        now: Instant,
        offsets: Mapping[TopicPartition, CommittedOffset],
        timeout_s: float | None = None,
    ) -> int:
        """Commits offsets; returns the number by which `CommitEnded` reports the result."""
        number = self._number()

        def done(now: Instant, error: ClientError | None) -> None:
            self._tell(CommitEnded(number, offsets, error))

        self._commits.commit(now, offsets, self._timeout_s(timeout_s), done)
        return number

    @property
    def has_committed(self) -> bool:
        """Whether every commit that was asked for has ended: a consumer that closes may go now."""
        return self._commits.is_idle

    def fetch_committed(
        self, now: Instant, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> int:
        """Fetches committed offsets; returns the number by which `OffsetsFetched` reports them."""
        number = self._number()
        self._offset_fetches.fetch(now, number, partitions, self._timeout_s(timeout_s))
        return number

    def consumed(self, now: Instant, positions: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The application has processed the records before these positions, for automatic commits."""
        if self._auto_commit is not None:
            owned = self.membership.owned
            ours = {at: each for at, each in positions.items() if self.membership.is_out or at in owned}
            self._auto_commit.consumed(now, ours)

    @property
    def unsaved(self) -> dict[TopicPartition, CommittedOffset]:
        """What auto commit has not committed yet."""
        return {} if self._auto_commit is None else self._auto_commit.unsaved

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _timeout_s(self, asked_s: float | None) -> float:
        return self.settings.api_timeout_s if asked_s is None else asked_s
