"""Settings of a topic's logs and partitions, from the topic's configs."""

from collections.abc import Mapping
from typing import Any

from headrace.machines.configs.topic import effective_topic_config, topic_defaults
from headrace.machines.configs.values import ConfigValue
from headrace.machines.metadata.image import ClusterImage
from headrace.node.settings import Settings
from headrace.storage.config import LogConfig

_PLAIN = {
    "segment_bytes": "segment.bytes",
    "segment_ms": "segment.ms",
    "segment_jitter_ms": "segment.jitter.ms",
    "segment_index_bytes": "segment.index.bytes",
    "index_interval_bytes": "index.interval.bytes",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "retention_waits_max_ms": "headrace.retention.waits.max.ms",
    "retention_waits_max_bytes": "headrace.retention.waits.max.bytes",
    "flush_messages": "flush.messages",
    "flush_ms": "flush.ms",
    "file_delete_delay_ms": "file.delete.delay.ms",
    "max_message_bytes": "max.message.bytes",
    "message_timestamp_type": "message.timestamp.type",
    "message_timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "message_timestamp_after_max_ms": "message.timestamp.after.max.ms",
    "compression_type": "compression.type",
    "delete_retention_ms": "delete.retention.ms",
    "min_compaction_lag_ms": "min.compaction.lag.ms",
    "max_compaction_lag_ms": "max.compaction.lag.ms",
    "min_cleanable_dirty_ratio": "min.cleanable.dirty.ratio",
    "validate_records": "headrace.validate.records",
}


class TopicConfigs:
    """Configs of all topics over one set of broker defaults; recreated when those change."""

    __slots__ = ("_defaults", "_unchanged")

    def __init__(self, settings: Settings, image: ClusterImage) -> None:
        self._defaults = topic_defaults(
            (image.broker_config(settings.node_id), image.cluster_config, settings.texts)
        )
        self._unchanged = _build(self._defaults)  # ten thousand topics without overrides share one

    def of(self, overrides: Mapping[str, str]) -> tuple[LogConfig, int]:
        """What the log needs, and min.insync.replicas."""
        if not overrides:
            return self._unchanged
        return _build(effective_topic_config(self._defaults, overrides))


def _build(values: Mapping[str, ConfigValue]) -> tuple[LogConfig, int]:
    plain: dict[str, Any] = {field: values[key] for field, key in _PLAIN.items()}
    policy: Any = values["cleanup.policy"]
    waits_for: Any = values["headrace.retention.waits.for"]
    sealed: Any = values["headrace.sealed.compression.type"]
    min_insync: Any = values["min.insync.replicas"]
    config = LogConfig(
        **plain,
        cleanup_policy=frozenset(policy),
        retention_waits_for=tuple(waits_for),
        sealed_compression_type="" if sealed in (None, "none") else sealed,
    )
    return config, min_insync
