"""Settings of a log, with Kafka's defaults. The node makes them from the topic's configs; new ones take
effect with the next append or background pass."""

from dataclasses import dataclass

INT64_MAX = (1 << 63) - 1
WEEK_MS = 7 * 24 * 3600 * 1000

DELETE = frozenset({"delete"})


@dataclass(slots=True)
class LogConfig:
    """Treated as immutable once assigned to a log."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: int = WEEK_MS  # -1: for ever
    retention_bytes: int = -1  # -1: without bound
    retention_waits_for: tuple[str, ...] = ()  # headrace.retention.waits.for: groups
    retention_waits_max_ms: int = -1  # -1: without bound
    retention_waits_max_bytes: int = -1  # -1: without bound
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"  # or "LogAppendTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    cleanup_policy: frozenset[str] = DELETE  # of "delete" and "compact"
    compression_type: str = "producer"  # or "uncompressed", "gzip", "snappy", "lz4", "zstd"
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    sealed_compression_type: str = (
        ""  # headrace.sealed.compression.type; empty: sealed segments stay as they are
    )
    validate_records: bool = False  # headrace.validate.records

    @property
    def roll_ms(self) -> int:
        """How old the active segment may become: one that is not sealed cannot be compacted."""
        if "compact" in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
