"""Commits that nobody asks for: how far the application has read, every interval and before it gives up
partitions.
"""

from collections.abc import Callable, Iterable, Mapping

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError
from headrace.client.membership.commits import Commits, Offsets
from headrace.client.membership.events import AutoCommitFailed, CommittedOffset


class AutoCommit:
    """Invariant: `_unsaved` is how far we read where `_saved`, the last commit, says something else."""

    def __init__(
        self,
        commits: Commits,
        tell: Callable[[AutoCommitFailed], None],
        *,
        interval_s: float,
        timeout_s: float,
    ) -> None:
        self._commits = commits
        self._tell = tell
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._unsaved: dict[TopicPartition, CommittedOffset] = {}
        self._saved: dict[TopicPartition, CommittedOffset] = {}
        self._is_under_way = False
        self._due_at = NEVER

    def consumed(self, now: Instant, positions: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The application is done with what lies before these positions."""
        for at, position in positions.items():
            if self._saved.get(at) == position:
                self._unsaved.pop(at, None)
            else:
                self._unsaved[at] = position
        if self._unsaved and self._due_at == NEVER:
            self._due_at = Instant(now + self._interval_s)

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            self._unsaved.pop(at, None)
            self._saved.pop(at, None)

    def advance(self, now: Instant) -> None:
        if self._is_under_way or now < self._due_at:
            return
        self._is_under_way = True
        self._due_at = NEVER
        self._save(now, dict(self._unsaved), self._ended)

    def _ended(self, now: Instant) -> None:
        self._is_under_way = False
        self._due_at = Instant(now + self._interval_s) if self._unsaved else NEVER

    def deadline(self) -> Instant:
        return NEVER if self._is_under_way else self._due_at

    def save(
        self, now: Instant, partitions: Iterable[TopicPartition], then: Callable[[Instant], None]
    ) -> None:
        """Commits what is unsaved of these now; `then` follows, however that ends."""
        self._save(now, {at: self._unsaved[at] for at in partitions if at in self._unsaved}, then)

    def _save(self, now: Instant, offsets: Offsets, then: Callable[[Instant], None]) -> None:
        def done(now: Instant, error: ClientError | None) -> None:
            if error is not None and offsets:
                self._tell(AutoCommitFailed(offsets, error))
            else:
                self._saved.update(offsets)
                for at, committed in offsets.items():
                    if self._unsaved.get(at) == committed:
                        del self._unsaved[at]
            then(now)

        self._commits.commit(now, offsets, self._timeout_s, done)
