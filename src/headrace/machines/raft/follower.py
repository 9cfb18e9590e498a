"""The roles that fetch the log from a leader: follower, which votes, and observer, which does not.

One request is under way at a time. A fetch begins at the flushed end of the log, so it is sent only when all
that was fetched before is durable: to the leader it is a promise.
"""

from headrace.base.time import NEVER, Instant
from headrace.machines.raft.messages import (
    AppendFetched,
    Fail,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    SnapshotAnswer,
    Truncate,
    WriteSnapshot,
)
from headrace.machines.raft.replica import Replica
from headrace.machines.raft.replica_log import LogPoint
from headrace.machines.raft.times import FETCH_WAIT_MS, RETRY_MS_MAX, QuorumTimes, after
from headrace.protocol.errors import ErrorCode


class Download:
    """A snapshot of the leader that is fetched piece by piece."""

    def __init__(self, snapshot: LogPoint) -> None:
        self.snapshot = snapshot
        self.position = 0


class FetchLoop:
    """The one request under way, when the next one is sent, and what becomes of the answers."""

    def __init__(self, replica: Replica, times: QuorumTimes, source: int, failures: int = 0) -> None:
        self.source = source  # the node that is asked
        self.under_way: Fetch | FetchSnapshot | None = None
        self.retry_at = NEVER  # NEVER: nothing to repeat
        self.failures = failures  # since the last answer without an error
        self._replica = replica
        self._times = times
        self._download: Download | None = None
        self._leader_high_watermark = -1  # as the leader told last; -1: it did not yet

    def fetch(self) -> None:
        """Send the next request, if there is none and all that was fetched before is durable."""
        replica = self._replica
        self.retry_at = NEVER
        if self.under_way is not None or not replica.log.is_flushed or replica.is_installing:
            return
        download = self._download
        if download is None:
            wait_ms = min(FETCH_WAIT_MS, self._times.fetch_timeout_ms // 2)
            end = replica.log.end
            self.under_way = Fetch(replica.local, replica.epoch, end, replica.high_watermark, wait_ms)
        else:
            self.under_way = FetchSnapshot(replica.local, replica.epoch, download.snapshot, download.position)
        replica.send(self.source, self.under_way)

    def fetch_later(self, now: Instant, delay_ms: int) -> None:
        self.retry_at = after(now, delay_ms)

    def failed(self, now: Instant) -> None:
        """The request under way has no answer, or one that does not help."""
        self.under_way = None
        self.failures += 1
        self.fetch_later(now, self._times.retry_ms(self.failures))

    # --- answers -------------------------------------------------------------------------------------------

    def fetched(self, answer: FetchAnswer) -> None:
        """An answer without an error."""
        assert answer.error is ErrorCode.NONE
        self._succeeded()
        if answer.divergence is not None:
            self._truncate(answer.divergence)
        elif answer.snapshot is not None:
            self._download = Download(answer.snapshot)
            self.fetch()
        else:
            self._leader_high_watermark = answer.high_watermark
            if answer.records:
                self._replica.emit(AppendFetched(answer.records))
            else:
                self._advance()
                self.fetch()

    def _succeeded(self) -> None:
        self.under_way = None
        self.failures = 0

    def _truncate(self, divergence: LogPoint) -> None:
        replica = self._replica
        end_offset = replica.log.truncation_point(divergence)
        if end_offset < replica.high_watermark:
            replica.emit(
                Fail(
                    f"leader {replica.leader_id} of epoch {replica.epoch} has other records from offset "
                    f"{end_offset} on, but everything before offset {replica.high_watermark} is committed"
                )
            )
            return
        replica.emit(Truncate(end_offset))
        replica.log.truncate(end_offset)
        self.fetch()

    def flushed(self) -> None:
        """More of what was fetched is durable."""
        self._advance()
        self.fetch()

    def _advance(self) -> None:
        """To where the leader said, as far as this log is flushed."""
        replica, told = self._replica, self._leader_high_watermark
        replica.advance(min(told, replica.log.flushed_offset))
        # A leader that was just elected may not know yet how much is committed: only an entry of its epoch
        # says that everything before it is.
        epoch, start_offset = replica.log.epochs[-1] if replica.log.epochs else (0, 0)
        knows = epoch == replica.epoch and start_offset < told
        replica.is_caught_up |= knows and told <= replica.high_watermark

    def append_failed(self, now: Instant) -> None:
        self.failures += 1
        self.fetch_later(now, RETRY_MS_MAX)

    # --- snapshots -----------------------------------------------------------------------------------------

    def piece_fetched(self, answer: SnapshotAnswer) -> None:
        """An answer without an error."""
        download = self._download
        assert download is not None, "a piece was asked for"
        self._succeeded()
        position = download.position
        download.position += len(answer.piece)
        is_last = self._replica.is_installing = download.position >= answer.size
        self._replica.emit(WriteSnapshot(download.snapshot, position, answer.piece, is_last))
        self.fetch()

    def end_download(self) -> None:
        """It is installed, cannot be, or the leader has another one now: ask where to go on. Nobody waits for
        a piece any more.
        """
        self._download = None
        self.under_way = None


class Follower:
    """Follows a leader. A voter that hears nothing from it until `leader_until`, or whose fetch is refused
    because nobody listens there, asks for pre-votes.
    """

    name = "follower"

    def __init__(self, loop: FetchLoop, leader_until: Instant) -> None:
        self.loop = loop
        self.leader_until = leader_until
        self.doubts_at = NEVER  # when it asks for pre-votes, because the leader seems to be gone

    @property
    def grants_pre_votes(self) -> bool:
        """A leader that is heard needs no election."""
        return self.doubts_at != NEVER

    def deadline(self) -> Instant:
        return min(self.leader_until, self.doubts_at, self.loop.retry_at)


class Observer:
    """Follows a leader without a vote, or looks for one: it asks the voters in turn until one tells it."""

    name = "observer"
    grants_pre_votes = False

    def __init__(self, loop: FetchLoop, leader_until: Instant) -> None:
        self.loop = loop
        self.leader_until = leader_until  # then it asks another voter

    def deadline(self) -> Instant:
        return min(self.leader_until, self.loop.retry_at)
