"""The records of a producer are in their partition in the order of sending, without gaps.

A gap would make the node refuse the following batches. Values contain the producer's name and identity, and a
number that rises. A producer without idempotence may write duplicates, so only the first copy of each of its
records counts, and only in partitions that still have all their records: elsewhere the first copy may be
gone.
"""

from headrace.simulator.history import (
    BatchRefused,
    BatchSent,
    ConfigAsked,
    Event,
    Finished,
    NodeStopped,
    TopicCreated,
    Violation,
)


class OrderPerProducer:
    name = "order_per_producer"

    def __init__(self) -> None:
        self._promised: set[str] = set()  # topics that have had flush.messages=1 all the time
        self._machine_was_lost = False
        self._repeating: set[bytes] = set()  # producers without idempotence

    def see(self, event: Event, /) -> None:
        match event:
            case TopicCreated(topic, _, _, configs) if configs.get("flush.messages") == "1":
                self._promised.add(topic)
            case ConfigAsked(topic, key="flush.messages"):
                self._promised.discard(topic)
            case BatchSent(producer, is_idempotent=False):
                self._repeating.add(producer.encode())
            case NodeStopped("lost"):
                self._machine_was_lost = True
            case BatchRefused(producer, partition, error):
                if partition.topic in self._promised or not self._machine_was_lost:
                    raise Violation(f"{producer} was told {error} for its oldest batch to {partition}")
            case Finished(contents):
                for partition, records in contents.items():
                    self._check(str(partition), records)
            case _:
                pass

    def _check(self, partition: str, records: list[tuple[int, bytes]]) -> None:
        last: dict[bytes, int] = {}
        seen: set[bytes] = set()
        is_complete = all(offset == index for index, (offset, _) in enumerate(records))
        for offset, value in records:
            if value in seen:
                continue  # whether it may repeat is another judge's question
            seen.add(value)
            producer, number, _ = value.split(b":", 2)
            if not is_complete and producer.split(b".")[0] in self._repeating:
                continue
            if int(number) <= last.get(producer, 0):
                raise Violation(
                    f"{partition}: at offset {offset} {producer.decode()} has number {int(number)} "
                    f"after {last[producer]}"
                )
            last[producer] = int(number)
