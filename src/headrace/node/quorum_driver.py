"""Driver of the quorum's machine (`machines/raft`): carries out its effects in order, and sets its timer.

Effects after a change of the quorum state wait until that file is durable: a node that sends its vote and
then forgets it might vote twice. Effects that change the log go to the metadata log; effects that follow a
slow one wait for it, too.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant, Now
from headrace.machines.raft import messages as raft
from headrace.machines.raft.election import Candidate, Prospective
from headrace.machines.raft.quorum import Quorum
from headrace.machines.raft.quorum_state import FILE, NOBODY, QuorumState
from headrace.machines.raft.replica_log import ReplicaLog
from headrace.machines.raft.times import QuorumTimes
from headrace.machines.raft.voters import VoterKey, Voters
from headrace.node.group_commit import RETRY_MS
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_files import METADATA_DIRECTORY
from headrace.node.ports import Act, Deadlines, Once, Ports
from headrace.node.quorum_peers import QuorumPeers
from headrace.node.routes import Request
from headrace.node.settings import Settings
from headrace.node.waiting import Parked, Waitable, Waiting
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.errors import is_transient
from headrace.storage.jobs import JobKind

QUORUM_STATE = f"{METADATA_DIRECTORY}/{FILE}"

# An election takes a fraction of a second; after so long somebody has to look.
LEADERLESS_SECONDS = 5.0


class QuorumDriver:
    __slots__ = (
        "_change_log",
        "_deadlines",
        "_directories",
        "_effects",
        "_is_busy",
        "_jobs",
        "_last_ticket",
        "_leaderless_since",
        "_peers",
        "_quorum",
        "_replies",
        "_reports",
        "_settled",
        "_waiting",
        "_wake",
        "is_starting",
    )

    def __init__(
        self,
        quorum: Quorum,
        directories: LogDirectories,
        ports: Ports,
        change_log: Callable[[Now, raft.Effect], bool],
        settled: Act,
    ) -> None:
        """`change_log` carries out an effect that is about the log; False: that takes a while, and `go_on`
        is called afterwards. `settled` is called when nothing is left to carry out.
        """
        self._quorum = quorum
        self._directories = directories
        self._jobs = ports.jobs
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._waiting = ports.waiting
        self._change_log = change_log
        self._settled = settled
        self._peers: QuorumPeers | None = None
        self._wake = QuorumWake(ports.deadlines, quorum.deadline, self._woken)
        self._effects: deque[raft.Effect] = deque()  # ordered, and not carried out yet
        self._is_busy = False  # effects are being carried out, or wait for one that takes a while
        self.is_starting = False  # the node does not run yet: what is slow is done at once
        self._replies: dict[int, QuorumReply] = {}  # by ticket: requests of other nodes
        self._last_ticket = 0
        self._leaderless_since: Instant | None = None  # or since the last report about it

    @property
    def is_settled(self) -> bool:
        """Nothing that was ordered waits for the quorum state to be durable."""
        return not self._is_busy

    def connect(self, peers: QuorumPeers) -> None:
        self._peers = peers

    def start(self, now: Now) -> None:
        self.is_starting = True
        self.step(now, raft.Started())
        self.is_starting = False

    def step(self, now: Now, event: raft.Event) -> None:
        self._effects += self._quorum.step(now.mono, event)
        if not self._is_busy:
            self._carry_out(now)

    def _woken(self, now: Now) -> None:
        self.step(now, raft.Woke())

    def ask(
        self, request: Request, message: raft.Message, respond: Callable[[raft.Answer], Any]
    ) -> "Any | QuorumReply":
        """The response to a request of another node, now or later; `respond` makes it of the answer."""
        self._last_ticket += 1
        reply = self._replies[self._last_ticket] = QuorumReply(self._waiting, request, respond)
        self.step(request.now, raft.Asked(self._last_ticket, message))
        return reply.response if reply.response is not None else reply

    def go_on(self, now: Now) -> None:
        """An effect that took a while is carried out."""
        self._carry_out(now)

    def _carry_out(self, now: Now) -> None:
        self._is_busy = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                match effect:
                    case raft.PersistQuorumState(state):
                        if not self._persist(now, state):
                            return
                    case raft.Send(peer, message):
                        assert self._peers is not None
                        self._peers.send(now, peer, message)
                    case raft.Reply(ticket, answer):
                        self._replies.pop(ticket).give(answer)
                    case _:
                        if not self._change_log(now, effect):
                            return
        except BaseException:
            self._is_busy = False
            raise
        self._is_busy = False
        self._settled(now)
        if self._has_leader:
            self._leaderless_since = None
        elif self._leaderless_since is None:
            self._leaderless_since = now.mono
        elif now.mono >= self._leaderless_since + LEADERLESS_SECONDS:
            self._leaderless_since = now.mono
            self._report_leaderless()
        self._wake.set()

    @property
    def _has_leader(self) -> bool:
        """A voter that asks for votes may still name the leader of this epoch, but does not hear it."""
        is_asking = isinstance(self._quorum.role, Prospective | Candidate)
        return self._quorum.leader_id != NOBODY and not is_asking

    def _report_leaderless(self) -> None:
        """Tell the operator what is missing, again and again while it is."""
        quorum = self._quorum
        role = quorum.role
        silent = sorted(role.poll.failures) if isinstance(role, Prospective | Candidate) else []
        needed = "an election needs a majority" if quorum.voters.are_known else "the first election needs all"
        self._reports.report(
            "warning",
            "no_quorum_leader",
            epoch=quorum.epoch,
            not_answering=silent,
            hint=f"{needed} of the controllers {list(quorum.voters.ids)}: start those that do not run, "
            "and check the network between them",
        )

    # --- the quorum state --------------------------------------------------------------------------------

    def _persist(self, now: Now, state: QuorumState) -> bool:
        """Whether it is durable now; else the effects that follow wait until it is."""
        job = PersistJob(state.to_bytes())
        log_dir = self._directories.metadata_log_dir
        if self.is_starting:
            job.run(self._directories.disks[log_dir])
            return True

        def ended(now: Now, result: Any) -> None:
            self._persisted(now, state, result)

        self._jobs.run(log_dir, "quorum", job, ended)
        return False

    def _persisted(self, now: Now, state: QuorumState, result: Any) -> None:
        if isinstance(result, OSError) and is_transient(result):
            self._reports.report("error", "quorum_state_postponed", error=str(result))
            Once(self._deadlines, now.after_ms(RETRY_MS), lambda now: self._persist_again(now, state))
        elif isinstance(result, Exception):
            self._directories.go_offline(now, self._directories.metadata_log_dir, result)
        else:
            self._carry_out(now)

    def _persist_again(self, now: Now, state: QuorumState) -> None:
        self._persist(now, state)


def open_quorum(
    settings: Settings, directory_id: bytes, log: ReplicaLog, state: QuorumState, rng: Randomness
) -> Quorum:
    ids = [voter.id for voter in settings.quorum_voters] or [settings.node_id]
    times = QuorumTimes(
        settings.controller_quorum_election_timeout_ms,
        settings.controller_quorum_election_backoff_max_ms,
        settings.controller_quorum_fetch_timeout_ms,
        settings.controller_quorum_retry_backoff_ms,
    )
    local = VoterKey(settings.node_id, directory_id)
    if log.voters and log.voters[-1][1].ids == (local.id,) and not log.voters[-1][1].has(local):
        log.voters.clear()  # the only voter has moved its log to another directory: that is recorded again
    return Quorum(local, Voters.of(VoterKey(id) for id in ids), log, state, times, rng)


def read_quorum_state(disk: Disk) -> QuorumState:
    if not disk.exists(QUORUM_STATE):
        return QuorumState()
    return QuorumState.from_bytes(read_whole(disk, QUORUM_STATE))


class PersistJob:
    """Writes the quorum state: durable when it ends."""

    kind = JobKind.IO

    def __init__(self, data: bytes) -> None:
        self._data = data

    def run(self, disk: Disk) -> None:
        write_atomically(disk, QUORUM_STATE, self._data)


class QuorumWake:
    """The deadline of the quorum's machine, in the node's heap. When it moves into the future, the entry
    stays where it is and is set again when it fires: most deadlines move with every fetch.
    """

    __slots__ = ("_act", "_at", "_deadlines", "_entry", "_next")

    def __init__(self, deadlines: Deadlines, next: Callable[[], Instant | None], act: Act) -> None:
        self._deadlines = deadlines
        self._next = next
        self._act = act
        self._entry: Once | None = None
        self._at = NEVER  # of the entry

    def set(self) -> None:
        at = self._next()
        if at is None or (self._entry is not None and self._at <= at):
            return
        if self._entry is not None:
            self._entry.is_done = True
            self._deadlines.cancelled()
        self._at = at
        self._entry = Once(self._deadlines, at, self._fire)

    def _fire(self, now: Now) -> None:
        self._entry = None
        at = self._next()
        if at is not None and at <= now.mono:
            self._act(now)
        self.set()


class QuorumReply(Parked):
    """A request of another node that waits for the quorum's machine, which never forgets one."""

    __slots__ = ("_answered", "_respond", "response")

    def __init__(self, waiting: Waiting, request: Request, respond: Callable[[raft.Answer], Any]) -> None:
        super().__init__(waiting, request)
        self._respond = respond
        self._answered = Waitable()
        self.response: Any = None
        self.wait_for(self._answered)

    def give(self, answer: raft.Answer) -> None:
        self.response = self._respond(answer)
        self.waiting.wake(self._answered)

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        return self.response
