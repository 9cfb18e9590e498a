"""The records of the cluster metadata log, in the shapes that KRaft gave them, and their frame.

A record's value is an unsigned varint frame version (always 1), the record's key and its version as
unsigned varints, then the body. The record's own key is null.
"""

from __future__ import annotations

from headrace.protocol.compiler import codec
from headrace.protocol.errors import MalformedMessage, UnsupportedVersion
from headrace.protocol.metadata_records.features import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
)
from headrace.protocol.metadata_records.nodes import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from headrace.protocol.metadata_records.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from headrace.protocol.metadata_records.settings import ClientQuotaRecord, ConfigRecord, EntityData
from headrace.protocol.metadata_records.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headrace.protocol.notation import Data
from headrace.protocol.varint import decode_varint, encode_varint

__all__ = [
    "RECORD_TYPES",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerEndpoint",
    "BrokerFeature",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "ControllerEndpoint",
    "ControllerFeature",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "EntityData",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UserScramCredentialRecord",
    "ZkMigrationStateRecord",
    "decode_record",
    "encode_record",
]

FRAME_VERSION = 1

RECORD_TYPES: dict[int, type[Data]] = {
    kind.KEY: kind
    for kind in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}


def encode_record(message: Data, version: int) -> bytes:
    """The value of a metadata record: frame version, key, version, body."""
    kind = type(message)
    return (
        encode_varint(FRAME_VERSION)
        + encode_varint(kind.KEY)
        + encode_varint(version)
        + codec(kind, version).encode(message)
    )


def decode_record(value: bytes | memoryview) -> Data:
    """Reads the value of a metadata record; the message's type says which record it is.

    UnsupportedVersion for a key or version that we do not know, MalformedMessage for anything that is no
    record.
    """
    frame_version, position = decode_varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"metadata frame version {frame_version} is not {FRAME_VERSION}")
    key, position = decode_varint(value, position)
    version, position = decode_varint(value, position)
    kind = RECORD_TYPES.get(key)
    if kind is None:
        raise UnsupportedVersion(key, version)
    return codec(kind, version).decode(value, position)
