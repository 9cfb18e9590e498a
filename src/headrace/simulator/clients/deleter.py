"""Client that deletes the records before a random offset of a partition, often one inside a batch."""

from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.simulator.clients.consumer import LATEST, list_offset
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import DeletionAsked, History, PartitionKey, RecordsDeleted
from headrace.simulator.nodes import Nodes

DELETE_RECORDS = 21
TIMEOUT_MS = 800
PATIENCE_S = 1.0
KEPT_MAX = 12  # records that are left of what there was: a follower that was away has to start over


class Deleter(Script):
    def __init__(self, nodes: Nodes, name: str, topic: Topic) -> None:
        super().__init__(nodes, name)
        self._topic = topic
        self.patience_s = PATIENCE_S
        self.is_stopping = False

    def story(self) -> Story:
        while not self.is_stopping:
            key = self.world.rng.choice(self._topic.keys)
            latest = yield list_offset(self.history, key, LATEST)
            told = latest.topics[0].partitions[0] if latest is not None else None
            if told is not None and told.error_code == ErrorCode.NONE and not self.is_stopping:
                offset = max(told.offset - self.world.rng.randrange(KEPT_MAX), 0)
                yield delete_records(self.history, key, offset, TIMEOUT_MS)
                yield Pause(self.world.between(0.05, 0.4))
            else:
                self.hang_up()  # another node may lead it
                yield Pause(0.05)


def delete_records(history: History, key: PartitionKey, offset: int, timeout_ms: int) -> Ask:
    """Everything before `offset`; the history learns what was asked and what was promised."""
    history.add(DeletionAsked(key, offset))
    partition = DeleteRecordsPartition(partition_index=key.number, offset=offset)
    body = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=key.topic, partitions=[partition])], timeout_ms=timeout_ms
    )

    def promised(answer: Any) -> None:
        result = answer.topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            history.add(RecordsDeleted(key, result.low_watermark))

    return Ask(DELETE_RECORDS, 2, body, promised)
