"""Headrace: a distributed log that speaks Kafka's wire protocol, and a client for any Kafka cluster.

    headrace.Producer, headrace.Consumer, headrace.Admin      for threads
    headrace.aio                                              the same for asyncio
    headrace.testing                                          a broker for your tests

Names are loaded when they are first used: a broker that starts has no need of a client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.base.secret import Secret
    from headrace.client.admin.acls import (
        Acl,
        AclFilter,
        AclOperation,
        AclPattern,
        AclPermission,
        AclResource,
    )
    from headrace.client.admin.cluster import FeatureChange
    from headrace.client.admin.configs import Append, Resource, ResourceKind, Subtract
    from headrace.client.admin.offsets import OffsetAt
    from headrace.client.admin.replicas import Replica
    from headrace.client.admin.topics import NewTopic
    from headrace.client.admin.users import QuotaEntity
    from headrace.client.cluster import TopicPartition
    from headrace.client.consumer.offsets import OffsetAndTimestamp
    from headrace.client.consumer.rebalance_callbacks import RebalanceListener
    from headrace.client.dataclass_serializer import dataclass_json
    from headrace.client.errors import (
        AuthenticationFailed,
        BadResponse,
        BatchRefused,
        BufferExhausted,
        ClientBroken,
        ClientError,
        Closed,
        ConcurrentUse,
        ConnectionLost,
        InvalidInput,
        KafkaError,
        OutsideTransaction,
        PartitionsLost,
        PartlyFailed,
        ProducerClosed,
        ProducerUnusable,
        RecordLost,
        TimedOut,
        TlsFailed,
        TokenUnavailable,
        TransactionAborted,
        TransactionMustAbort,
        Unreachable,
        UnsupportedByBroker,
        WokenUp,
    )
    from headrace.client.membership.events import CommittedOffset, GroupMembership
    from headrace.client.producer._batch import Delivery, RecordMetadata
    from headrace.client.producer.deliveries import PartitionRows, TableDelivery, TableMetadata
    from headrace.client.producer.rejections import TopicUnknown
    from headrace.client.security.sasl import Token
    from headrace.client.serializers import (
        BYTES,
        JSON,
        TEXT,
        NotSerializable,
        Serializer,
        SerializerUnusable,
        Undecodable,
        UndecodableRecord,
        msgspec_json,
        msgspec_messagepack,
        pydantic_json,
        serializer_for,
    )
    from headrace.client.settings.configuration import InvalidSetting
    from headrace.client.stored_offsets import OffsetsMovedOn, StoredOffsets
    from headrace.client.threads.admin import Admin
    from headrace.client.threads.consumer import Consumer
    from headrace.client.threads.producer import Producer
    from headrace.records._messages import Message, TimestampType

__version__ = "0.1.0"

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPattern",
    "AclPermission",
    "AclResource",
    "Admin",
    "Append",
    "AuthenticationFailed",
    "BadResponse",
    "BatchRefused",
    "BufferExhausted",
    "ClientBroken",
    "ClientError",
    "Closed",
    "CommittedOffset",
    "ConcurrentUse",
    "ConnectionLost",
    "Consumer",
    "Delivery",
    "FeatureChange",
    "GroupMembership",
    "InvalidInput",
    "InvalidSetting",
    "KafkaError",
    "Message",
    "NewTopic",
    "NotSerializable",
    "OffsetAndTimestamp",
    "OffsetAt",
    "OffsetsMovedOn",
    "OutsideTransaction",
    "PartitionRows",
    "PartitionsLost",
    "PartlyFailed",
    "Producer",
    "ProducerClosed",
    "ProducerUnusable",
    "QuotaEntity",
    "RebalanceListener",
    "RecordLost",
    "RecordMetadata",
    "Replica",
    "Resource",
    "ResourceKind",
    "Secret",
    "Serializer",
    "SerializerUnusable",
    "StoredOffsets",
    "Subtract",
    "TableDelivery",
    "TableMetadata",
    "TimedOut",
    "TimestampType",
    "TlsFailed",
    "Token",
    "TokenUnavailable",
    "TopicPartition",
    "TopicUnknown",
    "TransactionAborted",
    "TransactionMustAbort",
    "Undecodable",
    "UndecodableRecord",
    "Unreachable",
    "UnsupportedByBroker",
    "WokenUp",
    "__version__",
    "dataclass_json",
    "msgspec_json",
    "msgspec_messagepack",
    "pydantic_json",
    "serializer_for",
]

# Where each name lives, one line per module.
_HOMES = {
    "headrace.client.admin.acls": "Acl AclFilter AclOperation AclPattern AclPermission AclResource",
    "headrace.client.admin.cluster": "FeatureChange",
    "headrace.client.admin.configs": "Append Resource ResourceKind Subtract",
    "headrace.client.admin.replicas": "Replica",
    "headrace.client.admin.offsets": "OffsetAt",
    "headrace.client.admin.users": "QuotaEntity",
    "headrace.base.secret": "Secret",
    "headrace.client.admin.topics": "NewTopic",
    "headrace.client.cluster": "TopicPartition",
    "headrace.client.settings.configuration": "InvalidSetting",
    "headrace.client.consumer.rebalance_callbacks": "RebalanceListener",
    "headrace.client.consumer.offsets": "OffsetAndTimestamp",
    "headrace.client.dataclass_serializer": "dataclass_json",
    "headrace.client.errors": (
        "AuthenticationFailed BadResponse BatchRefused BufferExhausted ClientBroken ClientError Closed"
        " ConcurrentUse ConnectionLost InvalidInput KafkaError OutsideTransaction PartitionsLost PartlyFailed"
        " ProducerClosed ProducerUnusable RecordLost TimedOut TlsFailed TokenUnavailable TransactionAborted"
        " TransactionMustAbort Unreachable UnsupportedByBroker WokenUp"
    ),
    "headrace.client.membership.events": "CommittedOffset GroupMembership",
    "headrace.client.producer.rejections": "TopicUnknown",
    "headrace.client.producer.deliveries": "PartitionRows TableDelivery TableMetadata",
    "headrace.client.security.sasl": "Token",
    "headrace.client.serializers": (
        "BYTES JSON TEXT NotSerializable Serializer SerializerUnusable Undecodable UndecodableRecord"
        " msgspec_json msgspec_messagepack pydantic_json serializer_for"
    ),
    "headrace.client.stored_offsets": "OffsetsMovedOn StoredOffsets",
    "headrace.client.threads.admin": "Admin",
    "headrace.client.threads.consumer": "Consumer",
    "headrace.client.threads.producer": "Producer",
    "headrace.records._messages": "Message TimestampType",
    "headrace.client.producer._batch": "Delivery RecordMetadata",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
