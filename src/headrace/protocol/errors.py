"""Kafka's error codes, and the exceptions of encoding and decoding.

A response contains an error code. The type of an exception says whose error it is: the peer's
(MalformedMessage, UnsupportedVersion) or our own (UnencodableMessage).
"""

from __future__ import annotations

from enum import IntEnum

RETRIABLE = True


class ErrorCode(IntEnum):
    """A code, what it says in plain words, and whether the same request may succeed later."""

    text: str
    is_retriable: bool

    # `text` may be left out for the sake of ErrorCode(3), which looks a member up and makes none
    def __new__(cls, code: int, text: str = "", is_retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.text = text
        member.is_retriable = is_retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "the broker failed in a way that it did not foresee"
    NONE = 0, "no error"
    OFFSET_OUT_OF_RANGE = 1, "the offset lies outside of what the partition holds"
    CORRUPT_MESSAGE = 2, "the records are damaged, too large, or lack a key that the topic needs", RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "this broker has no such topic or partition", RETRIABLE
    INVALID_FETCH_SIZE = 4, "the fetch size makes no sense"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader at the moment", RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, "this broker does not lead the partition, or has no replica of it", RETRIABLE
    REQUEST_TIMED_OUT = 7, "the request was not completed in its time", RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica is not available", RETRIABLE
    MESSAGE_TOO_LARGE = 10, "a record batch is larger than the broker takes"
    STALE_CONTROLLER_EPOCH = 11, "the controller has moved"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata beside an offset is too long"
    NETWORK_EXCEPTION = 13, "the connection broke before the answer came", RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is still loading its state", RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "there is no coordinator at the moment", RETRIABLE
    NOT_COORDINATOR = 16, "this broker is not the coordinator", RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "the topic's name is not allowed, or the topic cannot be used so"
    RECORD_LIST_TOO_LARGE = 18, "a record batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, "too few replicas are in sync, nothing was written", RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "written, but too few replicas were in sync to promise it",
        RETRIABLE,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, "the group is at another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, "the member shares no protocol with the group"
    INVALID_GROUP_ID = 24, "the group's name is not allowed"
    UNKNOWN_MEMBER_ID = 25, "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, "the session timeout is outside of the broker's limits"
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing, join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the offsets to commit are too large"
    TOPIC_AUTHORIZATION_FAILED = 29, "no right to this topic"
    GROUP_AUTHORIZATION_FAILED = 30, "no right to this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "no right to the cluster"
    INVALID_TIMESTAMP = 32, "the record's timestamp is too far from the broker's clock"
    UNSUPPORTED_SASL_MECHANISM = 33, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, "the request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, "the broker does not speak this version of the request"
    TOPIC_ALREADY_EXISTS = 36, "a topic of this name exists"
    INVALID_PARTITIONS = 37, "the number of partitions is not possible"
    INVALID_REPLICATION_FACTOR = 38, "the replication factor is below one or above the number of live brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, "the replicas cannot be placed this way"
    INVALID_CONFIG = 40, "a setting has a value that it cannot have"
    NOT_CONTROLLER = 41, "this is not the active controller", RETRIABLE
    INVALID_REQUEST = 42, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the stored record format is too old for this request"
    POLICY_VIOLATION = 44, "a policy of the cluster forbids this"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "a batch of this producer is missing before this one"
    DUPLICATE_SEQUENCE_NUMBER = 46, "a batch with this sequence number was written before"
    INVALID_PRODUCER_EPOCH = 47, "a newer epoch of this producer is known"
    INVALID_TXN_STATE = 48, "the transaction is not in a state that allows this"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "the transaction timeout is longer than the broker allows"
    CONCURRENT_TRANSACTIONS = 51, "another change of this transaction is under way", RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "the transaction coordinator has been replaced"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "no right to this transactional id"
    SECURITY_DISABLED = 54, "security is switched off on this broker"
    OPERATION_NOT_ATTEMPTED = 55, "not tried, because something else in the request failed"
    KAFKA_STORAGE_ERROR = 56, "the disk failed", RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, "the login was refused"
    UNKNOWN_PRODUCER_ID = 59, "the partition knows nothing of this producer any more"
    REASSIGNMENT_IN_PROGRESS = 60, "replicas of this partition are being moved"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "the delegation token belongs to somebody else"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "delegation tokens cannot be used on this connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "no right to this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "this kind of principal is not supported"
    NON_EMPTY_GROUP = 68, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, "the fetch session is not known", RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "the fetch session is at another epoch", RETRIABLE
    LISTENER_NOT_FOUND = 72, "the leader does not have the listener that was asked through", RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, "the leader epoch is older than the broker's", RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "the leader epoch is newer than the broker's", RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "the client cannot read the compression of this partition"
    STALE_BROKER_EPOCH = 77, "the broker has registered again since"
    OFFSET_NOT_AVAILABLE = 78, "the new leader does not know yet what is committed", RETRIABLE
    MEMBER_ID_REQUIRED = 79, "join again with the member id that was given"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available", RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "the group is full"
    FENCED_INSTANCE_ID = 82, "another member has taken this instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "no replica may become leader", RETRIABLE
    ELECTION_NOT_NEEDED = 84, "the leader is already the right one", RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "no replicas are being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "the group still reads this topic"
    INVALID_RECORD = 87, "a record breaks the topic's rules"
    UNSTABLE_OFFSET_COMMIT = 88, "offsets of an open transaction are not settled yet", RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "the quota for such changes is used up", RETRIABLE
    PRODUCER_FENCED = 90, "a newer producer has taken this transactional id"
    RESOURCE_NOT_FOUND = 91, "there is no such resource"
    DUPLICATE_RESOURCE = 92, "the same resource is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, "sender and receiver disagree about who votes"
    INVALID_UPDATE_VERSION = 95, "the feature cannot go to this level"
    FEATURE_UPDATE_FAILED = 96, "the feature's level could not be changed"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "the principal of a forwarded request cannot be read"
    SNAPSHOT_NOT_FOUND = 98, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, "the position lies outside of the snapshot"
    UNKNOWN_TOPIC_ID = 100, "this broker has no topic with this id", RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "another broker has this id"
    BROKER_ID_NOT_REGISTERED = 102, "no broker is registered under this id"
    INCONSISTENT_TOPIC_ID = 103, "the topic's id is another one than in the log", RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "this is another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "the fetch session mixes topic names and ids", RETRIABLE
    INELIGIBLE_REPLICA = 107, "a replica in the new ISR may not be in it"
    NEW_LEADER_ELECTED = 108, "changed, but the leader is now another one"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "the offset has moved to remote storage"
    FENCED_MEMBER_EPOCH = 110, "the member has been fenced and must give up its partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, "another member still holds this instance id"
    UNSUPPORTED_ASSIGNOR = 112, "the group does not support this assignor"
    STALE_MEMBER_EPOCH = 113, "the member has a newer epoch by now"
    MISMATCHED_ENDPOINT_TYPE = 114, "brokers and controllers have different endpoints, this is the wrong one"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "this kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, "there is no such controller"
    UNKNOWN_SUBSCRIPTION_ID = 117, "the telemetry subscription is unknown or outdated"
    TELEMETRY_TOO_LARGE = 118, "the telemetry is larger than the broker takes"
    INVALID_REGISTRATION = 119, "the controller refuses the registration"
    TRANSACTION_ABORTABLE = 120, "the transaction can only be aborted"
    INVALID_RECORD_STATE = 121, "the record is not in a state that can be acknowledged"
    SHARE_SESSION_NOT_FOUND = 122, "the share session is not known", RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "the share session is at another epoch", RETRIABLE
    FENCED_STATE_EPOCH = 124, "the state epoch of the share group is another one"
    INVALID_VOTER_KEY = 125, "the voter key belongs to another replica"
    DUPLICATE_VOTER = 126, "the replica votes already"
    VOTER_NOT_FOUND = 127, "the replica does not vote"
    INVALID_REGULAR_EXPRESSION = 128, "the regular expression cannot be read"
    REBOOTSTRAP_REQUIRED = 129, "the metadata is too old, begin again from the bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, "the topology makes no sense"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "the topology epoch makes no sense"
    STREAMS_TOPOLOGY_FENCED = 132, "the topology epoch is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, "there are too many share sessions", RETRIABLE


class ProtocolError(Exception):
    """Base of everything that goes wrong between bytes and messages."""


class MalformedMessage(ProtocolError):
    """The peer sent bytes that are not the message they claim to be."""


class UnsupportedVersion(ProtocolError):
    """The peer speaks an API key or version that we do not."""

    def __init__(self, api_key: int, version: int) -> None:
        super().__init__(f"api key {api_key} version {version} is not supported")
        self.api_key = api_key
        self.version = version


class UnencodableMessage(ProtocolError):
    """Our own mistake: a value that does not fit its type, or a field that this version cannot carry."""


class KafkaError(Exception):
    """A request was refused with an error code; raised by whoever refuses, and by a refused client."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.text)
        self.code = code
        self.message = message
