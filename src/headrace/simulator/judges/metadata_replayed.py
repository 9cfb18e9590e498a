"""A replay of the metadata log gives what the last run had decided; and no producer id is given twice.

Asked after a clean stop, when all that was decided is durable. What was acknowledged before another kind of
end is the question of `metadata_remembered`.
"""

from headrace.simulator.history import Event, NodeStarted, NodeStopped, ProducerIdGiven, Violation


class MetadataReplayed:
    name = "metadata_replayed"

    def __init__(self) -> None:
        self._decided: str | None = None  # by a run that stopped cleanly
        self._given: dict[int, str] = {}

    def see(self, event: Event, /) -> None:
        match event:
            case NodeStopped(how, _, metadata):
                self._decided = metadata if how == "cleanly" else None
            case NodeStarted(_, metadata):
                if self._decided not in (None, metadata):
                    raise Violation(f"decided was {self._decided}; replayed is {metadata}")
                self._decided = None
            case ProducerIdGiven(producer, producer_id):
                if producer_id in self._given:
                    raise Violation(f"{self._given[producer_id]} and {producer} both got id {producer_id}")
                self._given[producer_id] = producer
            case _:
                pass
