"""The other nodes of the metadata quorum: where they are reached, and requests to them.

Addresses come from `controller.quorum.voters`; for voters that are not named there, from the records in the
log that say who votes. The messages are imported with the first request: a node alone needs none of them.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.machines.raft import messages as raft
from headrace.machines.raft.voters import Voters
from headrace.node.peers import CONTROLLERS, Peer, Unanswered, dialled
from headrace.node.ports import Once, Ports
from headrace.node.settings import Settings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.control_records import (
    Endpoint,
    KRaftVersionFeature,
    RegisteredVoter,
    VotersRecord,
)

if TYPE_CHECKING:
    from headrace.node.voter_dials import VoterDials

# Connections of their own: votes do not wait behind a long poll.
VOTES_LANE = "raft"
FETCH_LANE = "metadata"

Step = Callable[[Now, raft.Event], None]


class QuorumPeers:
    __slots__ = (
        "_cluster_id",
        "_deadlines",
        "_dials",
        "_named",
        "_peers",
        "_ports",
        "_recorded",
        "_reported",
        "_reports",
        "_settings",
        "_step",
    )

    def __init__(self, settings: Settings, cluster_id: str, ports: Ports, step: Step) -> None:
        """`step` is told what becomes of each request."""
        self._settings = settings
        self._cluster_id = cluster_id
        self._ports = ports
        self._peers = ports.peers
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._step = step
        self._named = {voter.id: Peer(*voter, CONTROLLERS) for voter in settings.quorum_voters}
        self._recorded: dict[int, list[Endpoint]] = {}
        self._dials: VoterDials | None = None
        self._reported: set[int] = set()  # of which it was reported that they are of another cluster

    def learn(self, records: Iterable[VotersRecord]) -> None:
        """The log says who votes."""
        for record in records:
            self._recorded = {voter.voter_id: voter.endpoints for voter in record.voters}

    def endpoints(self, voter_id: int) -> list[Endpoint]:
        """The controller listeners of a voter."""
        settings = self._settings
        if voter_id == settings.node_id:
            # one that is alone and has no controller listener is reached by its clients' listeners
            return [
                Endpoint(name=one.name, host=one.host, port=one.port)
                for one in settings.advertised_controllers or settings.advertised_listeners
            ]
        named = self._named.get(voter_id)
        if named is not None:
            name = next(iter(settings.controller_listener_names), "CONTROLLER")
            return [Endpoint(name=name, host=named.host, port=named.port)]
        return self._recorded.get(voter_id, [])

    def voters_record(self, voters: Voters) -> VotersRecord:
        return VotersRecord(
            voters=[
                RegisteredVoter(
                    voter_id=key.id,
                    voter_directory_id=key.directory_id,
                    endpoints=self.endpoints(key.id),
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=0, max_supported_version=1
                    ),
                )
                for key in voters.keys
            ]
        )

    def peer(self, id: int) -> Peer | None:
        """Where that voter is reached; None: not known."""
        found = self.endpoints(id)
        return Peer(id, found[0].host, found[0].port, CONTROLLERS) if found else None

    def dials(self, now: Now, voters: Voters) -> "VoterDials":
        """Which voters have ended. The first call begins to dial them."""
        if self._dials is None:
            from headrace.node.voter_dials import VoterDials

            self._dials = VoterDials(now, self._settings.node_id, voters.ids, self._dialled, self._ports)
        return self._dials

    def _dialled(self, id: int) -> Peer | None:
        peer = self.peer(id)
        by_tls = self._settings.controller_protocol.endswith("SSL")
        return None if peer is None else peer._replace(listener=dialled(by_tls=by_tls))

    def send(self, now: Now, id: int, message: raft.Message) -> None:
        from headrace.node.quorum_messages import request_of

        settings = self._settings
        peer = self.peer(id)
        if peer is None:
            refused = raft.Unanswered(id, message, is_refused=True)
            Once(self._deadlines, now.mono, lambda now: self._step(now, refused))
            return
        request = request_of(
            message,
            self._cluster_id,
            fetch_bytes_max=settings.controller_quorum_fetch_max_bytes,
            piece_bytes_max=settings.controller_quorum_fetch_snapshot_max_bytes,
        )
        lane, timeout_ms = VOTES_LANE, settings.controller_quorum_request_timeout_ms
        if isinstance(message, raft.Fetch | raft.FetchSnapshot):
            lane = FETCH_LANE
        if isinstance(message, raft.Fetch):
            timeout_ms += message.wait_ms

        def ended(now: Now, result: Any) -> None:
            self._ended(now, peer, message, result)

        self._peers.send(now, peer, lane, request, timeout_ms, ended)

    def _ended(self, now: Now, peer: Peer, message: raft.Message, result: Any) -> None:
        from headrace.node.quorum_messages import Malformed, answer_of

        if isinstance(result, Unanswered):
            is_refused = result is Unanswered.REFUSED
            self._step(now, raft.Unanswered(peer.id, message, is_refused))
            return
        try:
            answer = answer_of(result)
        except (Malformed, ValueError) as fault:
            self._reports.report("error", "quorum_answer_malformed", node=peer.id, error=str(fault))
            self._step(now, raft.Unanswered(peer.id, message, is_refused=False))
            return
        if answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID and peer.id not in self._reported:
            self._reported.add(peer.id)
            self._reports.report(
                "error",
                "inconsistent_cluster_id",
                node=peer.id,
                address=f"{peer.host}:{peer.port}",
                cluster_id=self._cluster_id,
                hint="the node at this address belongs to another cluster than this node's log directories: "
                "check controller.quorum.voters and log.dirs",
            )
        self._step(now, raft.Answered(peer.id, message, answer))
