"""APIs of the protocol: keys, versions, and the codecs of their messages.

The table has the APIs that Kafka 4.3 serves, and after them those that only Headrace has. Which of them a
broker advertises is decided by the node. A message module is imported when its first codec is used, so that a
broker starts without those that it does not need.
"""

from __future__ import annotations

from enum import Flag, IntEnum
from importlib import import_module
from typing import Any, NamedTuple

from headrace.protocol.compiler import Codec, codec
from headrace.protocol.errors import UnsupportedVersion
from headrace.protocol.notation import NO_VERSION, Request, Response


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    # Headrace's own, far from where Kafka's will ever be.
    SPLIT_RANGES = 30001
    APPEND_AT = 30002
    JOIN_SINK = 30010
    COMMIT_SINK = 30011
    ABORT_SINK = 30012
    LIST_SINKS = 30013
    RESET_SINK = 30014


class Listener(Flag):
    """Where a request may arrive."""

    BROKER = 1
    CONTROLLER = 2


BROKER = Listener.BROKER
CONTROLLER = Listener.CONTROLLER
BOTH = Listener.BROKER | Listener.CONTROLLER


class Api(NamedTuple):
    """A request and its response, in versions first to last; compact and tagged from `flexible_from` on."""

    key: ApiKey
    first: int
    last: int
    flexible_from: int | None
    listeners: Listener

    @property
    def name(self) -> str:
        """As in CreateTopics."""
        return "".join(word.capitalize() for word in self.key.name.split("_"))


_TABLE = (
    Api(ApiKey.PRODUCE, 3, 13, 9, BROKER),
    Api(ApiKey.FETCH, 4, 18, 12, BOTH),
    Api(ApiKey.LIST_OFFSETS, 1, 11, 6, BROKER),
    Api(ApiKey.METADATA, 0, 13, 9, BROKER),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, 8, BROKER),
    Api(ApiKey.OFFSET_FETCH, 1, 10, 6, BROKER),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, 3, BROKER),
    Api(ApiKey.JOIN_GROUP, 0, 9, 6, BROKER),
    Api(ApiKey.HEARTBEAT, 0, 4, 4, BROKER),
    Api(ApiKey.LEAVE_GROUP, 0, 5, 4, BROKER),
    Api(ApiKey.SYNC_GROUP, 0, 5, 4, BROKER),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5, BROKER),
    Api(ApiKey.LIST_GROUPS, 0, 5, 3, BROKER),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, None, BOTH),
    Api(ApiKey.API_VERSIONS, 0, 4, 3, BOTH),
    Api(ApiKey.CREATE_TOPICS, 2, 7, 5, BOTH),
    Api(ApiKey.DELETE_TOPICS, 1, 6, 4, BOTH),
    Api(ApiKey.DELETE_RECORDS, 0, 2, 2, BROKER),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2, BROKER),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4, BROKER),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3, BROKER),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3, BROKER),
    Api(ApiKey.END_TXN, 0, 5, 3, BROKER),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1, BROKER),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3, BROKER),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, 2, BOTH),
    Api(ApiKey.CREATE_ACLS, 1, 3, 2, BOTH),
    Api(ApiKey.DELETE_ACLS, 1, 3, 2, BOTH),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4, BOTH),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, 2, BOTH),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2, BROKER),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2, BROKER),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2, BOTH),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2, BOTH),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, 2, BOTH),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, 2, BOTH),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, 2, BOTH),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, 2, BOTH),
    Api(ApiKey.DELETE_GROUPS, 0, 2, 2, BROKER),
    Api(ApiKey.ELECT_LEADERS, 0, 2, 2, BOTH),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1, BOTH),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0, BOTH),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0, BOTH),
    Api(ApiKey.OFFSET_DELETE, 0, 0, None, BROKER),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1, BROKER),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1, BOTH),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0, BOTH),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0, BOTH),
    Api(ApiKey.VOTE, 0, 2, 0, CONTROLLER),
    Api(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, 1, CONTROLLER),
    Api(ApiKey.END_QUORUM_EPOCH, 0, 1, 1, CONTROLLER),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0, BOTH),
    Api(ApiKey.ALTER_PARTITION, 2, 3, 0, CONTROLLER),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, 0, BOTH),
    Api(ApiKey.ENVELOPE, 0, 0, 0, CONTROLLER),
    Api(ApiKey.FETCH_SNAPSHOT, 0, 1, 0, CONTROLLER),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0, BOTH),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0, BROKER),
    Api(ApiKey.BROKER_REGISTRATION, 0, 4, 0, CONTROLLER),
    Api(ApiKey.BROKER_HEARTBEAT, 0, 2, 0, CONTROLLER),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, 0, BOTH),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0, BROKER),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, 0, BROKER),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0, CONTROLLER),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0, BROKER),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0, BROKER),
    Api(ApiKey.CONTROLLER_REGISTRATION, 0, 0, 0, CONTROLLER),
    Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, 0, CONTROLLER),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0, BROKER),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0, BROKER),
    Api(ApiKey.ADD_RAFT_VOTER, 0, 1, 0, BOTH),
    Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0, BOTH),
    Api(ApiKey.UPDATE_RAFT_VOTER, 0, 0, 0, CONTROLLER),
    Api(ApiKey.SPLIT_RANGES, 0, 0, 0, BROKER),
    Api(ApiKey.APPEND_AT, 0, 0, 0, BROKER),
    Api(ApiKey.JOIN_SINK, 0, 0, 0, BROKER),
    Api(ApiKey.COMMIT_SINK, 0, 0, 0, BROKER),
    Api(ApiKey.ABORT_SINK, 0, 0, 0, BROKER),
    Api(ApiKey.LIST_SINKS, 0, 0, 0, BROKER),
    Api(ApiKey.RESET_SINK, 0, 0, 0, BROKER),
)

APIS: dict[int, Api] = {api.key: api for api in _TABLE}

# Old librdkafka looks for exact Produce versions, and without them it switches compression off
# (KAFKA-18659): the range that is told begins at 0, though nothing below 3 is served.
PRODUCE_FIRST_ADVERTISED = 0

# Read once per frame.
FLEXIBLE_FROM: dict[int, int] = {
    api.key: NO_VERSION if api.flexible_from is None else api.flexible_from for api in _TABLE
}

# by key, then by version: filled one by one, asked once per request
_requests: dict[int, dict[int, Codec[Any]]] = {api.key: {} for api in _TABLE}
_responses: dict[int, dict[int, Codec[Any]]] = {api.key: {} for api in _TABLE}


def request_codec(api_key: int, version: int, *, in_columns: bool = False) -> Codec[Any]:
    """The codec of a request's body; UnsupportedVersion if Kafka 4.3 would not serve it."""
    if in_columns:
        return codec(_load(api_key, version)[0].message, version, in_columns=True)
    try:
        return _requests[api_key][version]
    except KeyError:
        return _load(api_key, version)[0]


def response_codec(api_key: int, version: int, *, in_columns: bool = False) -> Codec[Any]:
    """The codec of a response's body; UnsupportedVersion if Kafka 4.3 would not serve it."""
    if in_columns:
        return codec(_load(api_key, version)[1].message, version, in_columns=True)
    try:
        return _responses[api_key][version]
    except KeyError:
        return _load(api_key, version)[1]


def _load(api_key: int, version: int) -> tuple[Codec[Any], Codec[Any]]:
    api = APIS.get(api_key)
    if api is None or not api.first <= version <= api.last:
        raise UnsupportedVersion(api_key, version) from None
    request_type, response_type = message_types(api)
    request = _requests[api_key][version] = codec(request_type, version)
    response = _responses[api_key][version] = codec(response_type, version)
    return request, response


def message_types(api: Api) -> tuple[type[Request], type[Response]]:
    """The two classes of an API, importing their module if need be."""
    module = import_module(f"headrace.protocol.messages.{api.key.name.lower()}")
    return getattr(module, f"{api.name}Request"), getattr(module, f"{api.name}Response")
