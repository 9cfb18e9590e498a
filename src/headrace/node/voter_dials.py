"""Connection attempts to the other voters, by a node that stops and waits for them.

While a majority of the voters has ended, there is no controller, and nothing can be committed: it is useless
to wait for either. A voter has ended if a connection to its address is refused. A voter that does not answer
may still run.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.base.time import Now
from headrace.machines.raft.majority import majority_of
from headrace.node.peers import Peer, Unanswered
from headrace.node.ports import Once, Ports
from headrace.protocol.messages.api_versions import ApiVersionsRequest

LANE = "voters"
TIMEOUT_MS = 1_000
AGAIN_MS = 50


class VoterDials:
    def __init__(
        self,
        now: Now,
        own_id: int,
        voters: tuple[int, ...],
        peer_of: Callable[[int], Peer | None],
        ports: Ports,
    ) -> None:
        """Begins to dial the others, and goes on until the node takes no more requests."""
        self._voters = voters
        self._peer_of = peer_of
        self._peers = ports.peers
        self._deadlines = ports.deadlines
        self._lifecycle = ports.lifecycle
        self._ended: set[int] = set()  # by the last answer
        for voter in voters:
            if voter != own_id:
                self._dial(voter, now)

    @property
    def is_majority_gone(self) -> bool:
        return len(self._voters) - len(self._ended) < majority_of(len(self._voters))

    def _dial(self, voter: int, now: Now) -> None:
        peer = self._peer_of(voter)
        if peer is None or self._lifecycle.is_stopping:
            return
        request = ApiVersionsRequest(client_software_name="headrace", client_software_version="1")
        self._peers.send(now, peer, LANE, request, TIMEOUT_MS, partial(self._answered, voter))

    def _answered(self, voter: int, now: Now, answer: Any) -> None:
        if answer is Unanswered.REFUSED:
            self._ended.add(voter)
        else:
            self._ended.discard(voter)
        Once(self._deadlines, now.after_ms(AGAIN_MS), partial(self._dial, voter))
