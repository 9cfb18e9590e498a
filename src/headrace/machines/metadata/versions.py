"""Which features and record versions this node writes: those of Kafka's metadata.version 4.3-IV0.

A feature is told as supported only when it works. Eligible leader replicas, the new group protocol and the
second transaction protocol are finalized by Kafka when it formats a directory; here they follow with their
issues.
"""

from headrace.protocol.metadata_records import encode_record
from headrace.protocol.notation import Data

METADATA_VERSION = "metadata.version"
METADATA_VERSION_MIN = 7  # 3.3-IV3, the oldest that KRaft itself still reads
METADATA_VERSION_LEVEL = 30  # 4.3-IV0

# Feature → lowest and highest level this node supports.
SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_LEVEL),
}

# What a new cluster begins with.
FINALIZED_AT_FORMAT: dict[str, int] = {METADATA_VERSION: METADATA_VERSION_LEVEL}


def encode(record: Data) -> bytes:
    """The record in its highest version: at our metadata.version that is what Kafka writes."""
    return encode_record(record, type(record).VERSIONS.last)
