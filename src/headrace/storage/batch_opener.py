"""Opening of stored batches for searches by time, large ones in a job.

A search by time opens batches. It opens small ones itself; at a large one it ends with MustLookFirst, whose
job opens the batch in another process. With the job's result the search starts again from the beginning,
because the log may have changed meanwhile.
"""

from dataclasses import dataclass, field
from typing import Any

from headrace.base.limits import (
    OPENED_INLINE_BYTES_MAX,
    OPENED_INLINE_RECORDS_MAX,
    UNCOMPRESSED_BATCH_BYTES_MAX,
)
from headrace.base.values import Value
from headrace.records import reader
from headrace.records.batch import BatchHeader, check_crc
from headrace.records.errors import BadRecords, DecompressionBomb
from headrace.storage.disk import Disk
from headrace.storage.errors import StorageError
from headrace.storage.jobs import JobKind
from headrace.storage.segment import Segment

Found = tuple[int, int]  # offset and timestamp


class LookJob(Value):
    """Opens one batch and looks for a record."""

    path: str
    position: int
    size: int
    crc: int
    since: int | None  # the first record with this timestamp or a later one; None: that with the largest one
    start_offset: int  # earlier ones do not count where the first is asked for

    @property
    def kind(self) -> JobKind:
        return JobKind.PROMPT

    @property
    def question(self) -> tuple[object, ...]:
        """What is asked of which batch: a file that was rewritten has others at its positions, and a log
        may begin later by now.
        """
        return self.path, self.position, self.crc, self.start_offset

    def run(self, disk: Disk, /) -> Found | BadRecords | None:
        """What is wrong with the batch is a result, not a failure of the job."""
        file = disk.open(self.path)
        try:
            batch = file.read(self.position, self.size)
        finally:
            file.close()
        try:
            return self.look(batch, check_crc(batch), UNCOMPRESSED_BATCH_BYTES_MAX)
        except BadRecords as fault:
            return fault

    def look(self, batch: bytes, header: BatchHeader, bytes_max: int) -> Found | None:
        if self.since is None:
            return reader.latest(batch, 0, header, bytes_max=bytes_max)
        found = reader.first_from(batch, 0, header, self.since, bytes_max=bytes_max)
        if found is None or found[0] >= self.start_offset:
            return found
        # the rare case: the log begins inside the batch, and its first match lies before
        for row in reader.read_rows(batch, 0, header, bytes_max=bytes_max):
            if row[1] >= self.since and row[0] >= self.start_offset:
                return row[0], row[1]
        return None


class MustLookFirst(StorageError):
    """Run the job, tell the opener, and ask again."""

    def __init__(self, job: LookJob) -> None:
        super().__init__(f"a batch of {job.size} bytes has to be opened")
        self.job = job


@dataclass(slots=True)
class BatchOpener:
    """Opens what one look-up asks for."""

    is_patient: bool = False  # opens large ones too, there and then
    _told: dict[tuple[object, ...], Found | BadRecords | None] = field(default_factory=dict)

    def tell(self, job: LookJob, result: Any) -> None:
        self._told[job.question] = result

    def look(
        self, segment: Segment, at: int, header: BatchHeader, since: int | None, start_offset: int
    ) -> Found | None:
        job = LookJob(segment.path + ".log", at, header.size, header.crc, since, start_offset)
        if header.is_log_append_time and header.record_count > header.last_offset_delta:
            return job.look(b"", header, 0)  # all records have one time, and the first one is there
        if job.question in self._told:
            told = self._told[job.question]
            if isinstance(told, BadRecords):
                raise told
            return told
        if self.is_patient:
            return job.look(segment.file().read(at, header.size), header, UNCOMPRESSED_BATCH_BYTES_MAX)
        if header.size > OPENED_INLINE_BYTES_MAX or header.record_count > OPENED_INLINE_RECORDS_MAX:
            raise MustLookFirst(job)
        try:
            return job.look(segment.file().read(at, header.size), header, OPENED_INLINE_BYTES_MAX)
        except DecompressionBomb as bomb:
            raise MustLookFirst(job) from bomb


# For callers that have no other requests to serve: opens every batch at once.
PATIENT = BatchOpener(is_patient=True)
