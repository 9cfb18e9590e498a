"""Sessions of brokers: when each was last heard, and how much metadata it had.

Only the active controller has them, and no record of the metadata log says anything about them: whoever is
elected gives every unfenced broker a whole session. The broker of the controller's own process is always
heard.
"""

from collections.abc import Iterable

from headrace.base.time import Instant, Now
from headrace.machines.metadata.image import BrokerState, ClusterImage

UNKNOWN_OFFSET = -1


class Session:
    __slots__ = ("ends", "epoch", "metadata_offset", "shutdown_offset")

    def __init__(self, epoch: int, ends: Instant, metadata_offset: int) -> None:
        self.epoch = epoch
        self.ends = ends
        self.metadata_offset = metadata_offset  # the broker has replayed the metadata up to here
        self.shutdown_offset: int | None = None  # where the metadata says that its leaders have moved


class BrokerSessions:
    def __init__(self, now: Now, image: ClusterImage, timeout_ms: int, own_broker: int | None) -> None:
        self._timeout_ms = timeout_ms
        self._own_broker = own_broker
        self._sessions: dict[int, Session] = {}  # by broker; those that end first come first
        for broker in image.brokers.values():
            if not broker.is_fenced:
                self.touch(now, broker, UNKNOWN_OFFSET)

    def touch(self, now: Now, broker: BrokerState, metadata_offset: int) -> Session:
        """The broker was heard."""
        session = self._sessions.pop(broker.id, None)
        if session is None or session.epoch != broker.epoch:
            session = Session(broker.epoch, now.mono, UNKNOWN_OFFSET)
        session.ends = now.after_ms(self._timeout_ms)
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        self._sessions[broker.id] = session
        return session

    def shutting_down(self, broker: int, offset: int) -> None:
        """Whoever has replayed the record at this offset knows that the broker's leaders have moved."""
        session = self._sessions.get(broker)
        if session is not None and session.shutdown_offset is None:
            session.shutdown_offset = offset

    def end(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            self._sessions.pop(broker, None)

    def is_live(self, now: Now, broker: int) -> bool:
        session = self._sessions.get(broker)
        return broker == self._own_broker or (session is not None and now.mono < session.ends)

    def is_heard(self, broker: int) -> bool:
        """The broker has sent a heartbeat to this controller."""
        session = self._sessions.get(broker)
        return session is not None and session.metadata_offset != UNKNOWN_OFFSET

    def deadline(self) -> Instant | None:
        """When the first session ends, if its broker stays silent."""
        for broker, session in self._sessions.items():
            if broker != self._own_broker:
                return session.ends
        return None

    def take_ended(self, now: Now) -> list[int]:
        """Brokers that were silent for too long. Their sessions are over."""
        ended = []
        for broker, session in self._sessions.items():
            if broker != self._own_broker:
                if session.ends > now.mono:
                    break
                ended.append(broker)
        self.end(ended)
        return ended

    def all_have(self, image: ClusterImage, offset: int) -> bool:
        """Every active broker, but the own, has replayed the metadata up to there."""
        return all(
            (session := self._sessions.get(broker.id)) is not None and session.metadata_offset >= offset
            for broker in image.brokers.values()
            if broker.is_active and broker.id != self._own_broker
        )
