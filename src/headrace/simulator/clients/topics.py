"""The topics of a run, as its clients see them."""

from dataclasses import dataclass, field

from headrace.simulator.history import PartitionKey


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    partitions: int
    configs: dict[str, str]
    topic_id: bytes = b""  # known once it was created
    has_keys: bool = False  # each record has one of its own, so that compaction takes none of them
    is_asked: bool = False  # its creation, by somebody who does not wait for the answer
    is_doomed: bool = False  # somebody asked for its deletion, whatever came of it
    is_gone: bool = False  # the deletion was acknowledged
    has_namesakes: bool = False  # is made again under its name: only its id tells which one is meant
    batch_bytes_max: int = 0  # if it gets larger ones than others
    keys: list[PartitionKey] = field(default_factory=list)

    def created(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.keys = [PartitionKey(self.name, topic_id, index) for index in range(self.partitions)]

    @property
    def is_there(self) -> bool:
        return bool(self.keys) and not self.is_doomed

    @property
    def opens_batches(self) -> bool:
        return self.configs.get("headrace.validate.records") == "true"
