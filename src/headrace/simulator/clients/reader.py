"""Final reader: at the end of a run it reads every partition from start to end, and reports to the judges."""

from headrace.protocol.errors import ErrorCode
from headrace.records.reader import batches, read_rows
from headrace.simulator.clients.consumer import EARLIEST, LATEST, end_of, fetch, list_offset, partitions_of
from headrace.simulator.clients.simulated_client import Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import Finished, PartitionKey
from headrace.simulator.host import Host


class Reader(Script):
    def __init__(self, host: Host, name: str, topics: list[Topic]) -> None:
        super().__init__(host, name)
        self._topics = topics
        self.contents: dict[PartitionKey, list[tuple[int, bytes]]] = {}

    def story(self) -> Story:
        finished = Finished({}, {}, {})
        for key in [key for topic in self._topics if topic.is_there for key in topic.keys]:
            for timestamp, offsets in ((EARLIEST, finished.starts), (LATEST, finished.ends)):
                while key not in offsets:
                    told = yield list_offset(self.history, key, timestamp)
                    if told is not None and told.topics[0].partitions[0].error_code == ErrorCode.NONE:
                        offsets[key] = told.topics[0].partitions[0].offset
                    else:
                        yield Pause(0.1)
            yield from self._read(key, finished)
        self.contents = finished.contents
        self.history.add(finished)

    def _read(self, key: PartitionKey, finished: Finished) -> Story:
        start, end = finished.starts[key], finished.ends[key]
        found = finished.contents.setdefault(key, [])
        position = start
        while position < end:
            wanted = {key: position}
            answer = yield fetch(
                self.history,
                self.name,
                wanted,
                version=12,
                max_wait_ms=0,
                min_bytes=0,
                partition_bytes=1_000_000,
            )
            got = partitions_of(answer, wanted) if answer is not None else []
            if got and got[0][1].error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                # a deletion that was asked for before has overtaken us
                told = yield list_offset(self.history, key, EARLIEST)
                if told is not None and told.topics[0].partitions[0].error_code == ErrorCode.NONE:
                    finished.starts[key] = told.topics[0].partitions[0].offset
                    position = max(position, finished.starts[key])
                continue
            if not got or got[0][1].error_code != ErrorCode.NONE:
                yield Pause(0.1)
                continue
            records = got[0][1].records
            if not records:
                yield Pause(0.1)
                continue
            for at, header in batches(records):
                found += [
                    (row[0], row[3] or b"") for row in read_rows(records, at, header) if row[0] >= position
                ]
            position = end_of(records)
