"""A replay of the metadata log gives what the last run had decided, and no producer id is assigned twice.

This is checked after a clean stop, when all decisions are durable. `metadata_remembered` checks what was
acknowledged before other kinds of stops.
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
