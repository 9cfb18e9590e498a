"""The active controller's watch over brokers: their sessions, and what happens when one is gone.

A broker whose process has ended is fenced at once: its connection breaks, the controller dials it, and nobody
listens there. One that is only silent is fenced when its session ends. A controller that was just elected
dials every unfenced broker until it hears from it, because it did not see the connections that broke before.
"""

from collections.abc import Collection
from typing import Any

from headrace.base.time import Now
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.machines.metadata.controller.sessions import BrokerSessions
from headrace.machines.metadata.image import BrokerState, ClusterImage
from headrace.node.error_codes import FAULTS
from headrace.node.group_commit import RETRY_MS
from headrace.node.metadata_log import MetadataLog
from headrace.node.peers import Peer, Unanswered, dialled
from headrace.node.ports import Once, Ports
from headrace.node.settings import LiveSettings

DIAL = "dial"
DIAL_TIMEOUT_MS = 1_000

# A process that ends closes its connections one after the other, and its listeners somewhere in between: a
# dial that is accepted and then lost is tried again.
DIAL_AGAIN_MS = 20
DIALS_MAX = 10

# A broker that has not sent a heartbeat to this controller yet may have no connection to it that could break.
DIAL_UNHEARD_MS = 200


class BrokerWatch:
    def __init__(
        self,
        settings: LiveSettings,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        ports: Ports,
        own_broker: int | None,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._decisions = decisions
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._peers = ports.peers
        self._own_broker = own_broker
        self._sessions: BrokerSessions | None = None  # None: another node is the active controller
        self._timer: Once | None = None
        self._dialled: dict[int, int] = {}  # how often, by broker
        self.unclean_elections = 0  # since the start of this process
        self.fencings = 0
        # brokers to be fenced once the log can be written, unless they are heard before: epoch, and why
        self._gone: dict[int, tuple[int, str]] = {}

    @property
    def sessions(self) -> BrokerSessions:
        assert self._sessions is not None, "this node is the active controller"
        return self._sessions

    def elected(self, now: Now, image: ClusterImage) -> None:
        timeout_ms = self._settings.current.broker_session_timeout_ms
        self._sessions = BrokerSessions(now, image, timeout_ms, self._own_broker)
        self._arm(now)
        for broker in image.live_brokers():
            self.dial(now, broker.id)

    def resigned(self, now: Now) -> None:
        self._sessions = None
        self._dialled.clear()
        self._gone.clear()

    def propose(self, now: Now, decision: MetadataDecision[Any]) -> int:
        """Append a decision, and tell the operator about leaders that may lack records. FAULTS: nothing has
        changed.
        """
        offset = self._metadata.propose(now, decision)
        self.unclean_elections += len(decision.unclean_elections)
        for partition in decision.unclean_elections:
            self._reports.report(
                "error",
                "unclean_leader_election",
                partition=partition,
                meaning="the new leader may lack records that were acknowledged",
            )
        return offset

    @property
    def end_offset(self) -> int:
        return self._metadata.end_offset

    def heard(self, now: Now, broker: BrokerState) -> None:
        """The broker has registered."""
        self.sessions.touch(now, broker, -1)
        self._arm(now)

    # --- silence -----------------------------------------------------------------------------------------

    def _arm(self, now: Now) -> None:
        """One timer; it is set again when it goes off, because heartbeats only move the deadline away."""
        if self._timer is None and self._sessions is not None:
            at = self._sessions.deadline()
            if at is not None:
                self._timer = Once(self._deadlines, at, self._woke)

    def _woke(self, now: Now) -> None:
        self._timer = None
        if self._sessions is not None:
            self.fence(now, self._sessions.take_ended(now), "it sent no heartbeat")
            self._arm(now)

    def fence(self, now: Now, brokers: Collection[int], reason: str) -> None:
        """Fence these brokers in one decision, now or as soon as the log can be written."""
        if self._sessions is None or not brokers:
            return
        decision = self._decisions.fence_brokers(brokers)
        if not decision.reply:
            return
        try:
            self.propose(now, decision)
        except FAULTS as fault:
            self._reports.report("error", "fencing_postponed", brokers=decision.reply, error=str(fault))
            if not self._gone:
                Once(self._deadlines, now.after_ms(RETRY_MS), self._fence_gone)
            image = self._decisions.image
            self._gone.update({broker: (image.brokers[broker].epoch, reason) for broker in decision.reply})
            self._sessions.end(decision.reply)
            return
        self._sessions.end(decision.reply)
        self.fencings += len(decision.reply)
        self._reports.report("warning", "broker_fenced", brokers=decision.reply, reason=reason)

    def _fence_gone(self, now: Now) -> None:
        gone, self._gone = self._gone, {}
        silent = {
            broker: reason
            for broker, (epoch, reason) in gone.items()
            if not self._was_heard_since(now, broker, epoch)
        }
        self.fence(now, list(silent), ", ".join(dict.fromkeys(silent.values())))

    def _was_heard_since(self, now: Now, broker: int, epoch: int) -> bool:
        """Since its session was ended: it has another one, or another run has its id."""
        known = self._decisions.image.brokers.get(broker)
        is_same = known is not None and known.epoch == epoch
        return not is_same or (self._sessions is not None and self._sessions.is_live(now, broker))

    # --- ended processes ---------------------------------------------------------------------------------

    def disconnected(self, now: Now, broker: int) -> None:
        """A connection that this broker had opened broke."""
        if self._sessions is not None:
            self.dial(now, broker)

    def dial(self, now: Now, broker: int) -> None:
        """Find out whether somebody listens where the broker said it would."""
        state = self._decisions.image.brokers.get(broker)
        if state is None or state.is_fenced or broker == self._own_broker or broker in self._dialled:
            return
        self._dialled[broker] = 0
        self._dial(now, state)

    def _dial(self, now: Now, state: BrokerState) -> None:
        from headrace.protocol.messages.api_versions import ApiVersionsRequest

        name = self._settings.current.inter_broker_listener_name
        endpoint = state.endpoints.get(name) or next(iter(state.endpoints.values()))
        request = ApiVersionsRequest(client_software_name="headrace", client_software_version="1")
        self._dialled[state.id] += 1
        peer = Peer(state.id, endpoint.host, endpoint.port, dialled(by_tls=endpoint.uses_tls))

        def answered(now: Now, answer: Any) -> None:
            self._answered(now, state, answer)

        self._peers.send(now, peer, DIAL, request, DIAL_TIMEOUT_MS, answered)

    def _answered(self, now: Now, state: BrokerState, answer: Any) -> None:
        broker = state.id
        if self._sessions is None or broker not in self._dialled:
            return
        known = self._decisions.image.brokers.get(broker)
        is_same = known is not None and known.epoch == state.epoch and not known.is_fenced
        if answer is Unanswered.LOST and is_same and self._dialled[broker] < DIALS_MAX:
            Once(self._deadlines, now.after_ms(DIAL_AGAIN_MS), lambda now: self._dial_again(now, state))
            return
        del self._dialled[broker]
        if answer is Unanswered.REFUSED and is_same:
            self.fence(now, [broker], "its process has ended")
        elif not isinstance(answer, Unanswered):
            self._peers.close(broker, DIAL)
            if is_same and not self._sessions.is_heard(broker):
                Once(
                    self._deadlines,
                    now.after_ms(DIAL_UNHEARD_MS),
                    lambda now: self._dial_unheard(now, broker),
                )

    def _dial_unheard(self, now: Now, broker: int) -> None:
        if self._sessions is not None and not self._sessions.is_heard(broker):
            self.dial(now, broker)

    def _dial_again(self, now: Now, state: BrokerState) -> None:
        if self._sessions is not None and state.id in self._dialled:
            self._dial(now, state)
