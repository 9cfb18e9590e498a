"""read_committed consumer with assigned partitions, which reports everything that it reads to the judges."""

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.simulator.clients.committed import committed_rows
from headrace.simulator.clients.consumer import FETCH, end_of
from headrace.simulator.clients.polling import READ_COMMITTED
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import CommittedRead, PartitionKey
from headrace.simulator.host import Host


class Observer(Script):
    def __init__(self, host: Host, name: str, topic: Topic) -> None:
        super().__init__(host, name)
        self._topic = topic
        self.shown: list[bytes] = []
        self.rows: dict[PartitionKey, list[tuple[int, bytes]]] = {}
        self.is_asked_to_stop = False

    def story(self) -> Story:
        positions = dict.fromkeys(self._topic.keys, 0)
        while not self.is_asked_to_stop:
            topic = FetchTopic(
                topic=self._topic.name,
                partitions=[
                    FetchPartition(partition=key.number, fetch_offset=offset, partition_max_bytes=5_000)
                    for key, offset in positions.items()
                ],
            )
            request = FetchRequest(
                max_wait_ms=200, min_bytes=1, max_bytes=50_000, isolation_level=READ_COMMITTED, topics=[topic]
            )
            answer = yield Ask(FETCH, 12, request)
            for told in answer.responses if answer is not None else ():
                for data in told.partitions:
                    key = self._topic.keys[data.partition_index]
                    if data.error_code == ErrorCode.NONE and data.records:
                        rows = committed_rows(data, positions[key])
                        self.history.add(CommittedRead(self.name, key, rows, data.last_stable_offset))
                        self.shown += [value for _, value in rows]
                        self.rows.setdefault(key, []).extend(rows)
                        positions[key] = max(positions[key], end_of(data.records))
            yield Pause(self.world.between(0.0, 0.3))
