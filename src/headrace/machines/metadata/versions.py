"""Features and record versions that this node writes: those of Kafka's metadata.version 4.3-IV0.

A feature is advertised only when it works.
"""

from headrace.protocol.metadata_records import encode_record
from headrace.protocol.notation import Data

METADATA_VERSION = "metadata.version"
METADATA_VERSION_MIN = 7  # 3.3-IV3, the oldest that KRaft itself still reads
METADATA_VERSION_LEVEL = 30  # 4.3-IV0
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"  # 1: the ELR is kept (KIP-966)
GROUP_VERSION = "group.version"  # 1: the new consumer group protocol (KIP-848)
TRANSACTION_VERSION = "transaction.version"  # 1: flexible records; 2: an epoch for each transaction (KIP-890)

# Feature → lowest and highest level this node supports.
SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_LEVEL),
    TRANSACTION_VERSION: (0, 2),
}

# What a new cluster begins with.
FINALIZED_AT_FORMAT: dict[str, int] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    GROUP_VERSION: 1,
    METADATA_VERSION: METADATA_VERSION_LEVEL,
    TRANSACTION_VERSION: 2,
}


def encode(record: Data) -> bytes:
    """The record in its highest version: at our metadata.version that is what Kafka writes."""
    return encode_record(record, type(record).VERSIONS.last)
