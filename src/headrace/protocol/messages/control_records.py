"""Control records: what brokers and the metadata quorum write among the data.

The key says what the record is; the value of a transaction's end goes behind an int16 version, the quorum's
values carry their version inside.
"""

from __future__ import annotations

from enum import IntEnum

from headrace.protocol.notation import INT16, INT32, INT64, STRING, UINT16, UUID, Data, Struct, array, field


class ControlRecordType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecordKey(Data, versions="0"):
    """The key of every control record, behind an int16 version: what the record is."""

    type: int = field(INT16)


class EndTxnMarker(Data, versions="0"):
    """The value of a COMMIT or ABORT record."""

    coordinator_epoch: int = field(INT32)


class Voter(Struct):
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID, "1+")


class LeaderChangeMessage(Data, versions="0-1", flexible="0+"):
    """The value of a LEADER_CHANGE record: the first one of every epoch of the quorum."""

    version: int = field(INT16)
    leader_id: int = field(INT32)
    voters: list[Voter] = field(array(Voter))
    granting_voters: list[Voter] = field(array(Voter))


class SnapshotHeaderRecord(Data, versions="0", flexible="0+"):
    """The value of the first record of a snapshot."""

    version: int = field(INT16)
    last_contained_log_timestamp: int = field(INT64)


class SnapshotFooterRecord(Data, versions="0", flexible="0+"):
    """The value of the last record of a snapshot."""

    version: int = field(INT16)


class KRaftVersionRecord(Data, versions="0", flexible="0+"):
    """The value of a KRAFT_VERSION record: how the quorum keeps its voters."""

    version: int = field(INT16)
    kraft_version: int = field(INT16)


class Endpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class RegisteredVoter(Struct):
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID)
    endpoints: list[Endpoint] = field(array(Endpoint))
    kraft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


class VotersRecord(Data, versions="0", flexible="0+"):
    """The value of a KRAFT_VOTERS record: the voters from here on."""

    version: int = field(INT16)
    voters: list[RegisteredVoter] = field(array(RegisteredVoter))
