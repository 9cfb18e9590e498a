"""What a consumer has done so far, as plain numbers."""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.cluster import TopicPartition


class ConsumerMetrics(NamedTuple):
    records: int  # handed out
    bytes: int  # of the batches that fetches brought, as they were on the wire
    fetches: int  # answered
    buffered_bytes: int  # fetched and not handed out
    lag: Mapping[TopicPartition, int]  # where it is known
