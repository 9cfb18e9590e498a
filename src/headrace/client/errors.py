"""Errors of the client: each says whether a retry helps, and what to do."""

from collections.abc import Mapping
from typing import Any

from headrace.protocol.errors import ErrorCode


class ClientError(Exception):
    """Base class of all errors of a client."""

    is_retriable = False
    advice = ""


class Unreachable(ClientError):
    """No broker could be connected to."""

    is_retriable = True
    advice = "Check the address, and that a broker is running there."


class ConnectionLost(ClientError):
    """The connection was closed; requests without an answer may or may not have been carried out."""

    is_retriable = True
    advice = "Check the broker's log; it may be restarting."


class TimedOut(ClientError):
    """No answer in time; the request may or may not have been carried out."""

    is_retriable = True
    advice = "The broker is overloaded or not responding; a longer timeout may help."


class BadResponse(ClientError):
    """The peer does not follow Kafka's protocol: it is probably not a Kafka broker."""

    advice = "Check that the address and port belong to a plaintext Kafka listener."


class UnsupportedByBroker(ClientError):
    """The broker does not have this API, or only in versions that this client does not support."""

    advice = "Use a broker that supports it."

    def __init__(self, api: str, offered: tuple[int, int] | None = None) -> None:
        detail = (
            ""
            if offered is None
            else (f" in a version that this client supports (the broker has {offered[0]} to {offered[1]})")
        )
        super().__init__(f"the broker does not support {api}{detail}")
        if api == "Metadata" and offered is None:  # only controllers do not have it
            self.advice = "This is probably a controller's port. Use the address of a broker."
        self.api = api


class ClientBroken(ClientError):
    """The client cannot continue: a bug in its own code (see the cause), or it was used after a fork."""

    advice = (
        "Close the client and create a new one. If the process did not fork, report the traceback as a bug."
    )


class InvalidInput(ClientError):
    """An argument is not valid, such as a partition that does not exist or a record that is too large."""


class Closed(InvalidInput):
    """The object was closed and cannot be used any more."""


class ConcurrentUse(InvalidInput):
    """Two threads used an object at the same time that only one thread may use."""

    advice = "Create a consumer for each thread; only wakeup() may be called from another thread."


class WokenUp(ClientError):
    """`wakeup()` ended a call that was waiting; nothing else is wrong."""


class PartitionsLost(ClientError):
    """The group assigned partitions to other members before their offsets were committed."""

    advice = "Poll again, which calls the listener. The new owner continues from the last committed offset."


class OutsideTransaction(InvalidInput):
    """A transactional producer can send records and offsets only inside a transaction."""

    advice = "Send inside `with producer.transaction():`, or after begin_transaction()."


class ProducerClosed(Closed):
    """The producer was closed and accepts no more records."""

    advice = "Create another producer, or close this one later."


class RecordLost(ClientError):
    """Records were not acknowledged in time; the broker may or may not have them."""

    advice = "Check the broker's log, then send the records again; acknowledged records are not lost."


class BatchRefused(ClientError):
    """The record was not written, because the broker refused another record of its batch."""

    advice = "Send it again, without the record that was refused."


class NoOffset(ClientError):
    """A partition has no committed offset, and auto.offset.reset is none."""

    advice = "Seek to an offset, or set auto.offset.reset to earliest or latest."


class LogTruncation(ClientError):
    """Records that were read are no longer in the log, which has others in their place (KIP-320). Raised
    if auto.offset.reset is none.
    """

    advice = "Undo the effects of the lost records, then seek to continue."

    def __init__(self, message: str, *, topic: str, partition: int, offset: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset  # first offset at which the log differs; -1: all of it, or unknown


class BufferExhausted(ClientError):
    """Records were sent faster than they could be delivered: the buffer was full for `max.block.ms`."""

    is_retriable = True
    advice = "Send more slowly, raise buffer.memory or max.block.ms, or check why the broker is slow."


class TransactionMustAbort(ClientError):
    """Something in the transaction failed, so it must be aborted; the cause says what."""

    advice = "Abort the transaction, then do its work again in a new one."


class TransactionAborted(ClientError):
    """The record was not sent, or is not visible to read_committed: its transaction was aborted."""

    advice = "Send it again in a new transaction."


class ProducerUnusable(ClientError):
    """The producer cannot be used any more: another producer uses its transactional id, or it is not
    authorized; the cause says which.
    """

    advice = "Close it; create a new one if no other process uses the transactional id."


class TlsFailed(ClientError):
    """The TLS connection failed: a certificate, a version or a host name does not match."""

    def __init__(self, said: str, *, advice: str = "") -> None:
        super().__init__(said)
        self.advice = advice or "Check the broker's log, and the ssl.* settings of both sides."


class AuthenticationFailed(ClientError):
    """The broker refused the login, or could not prove its own identity."""

    def __init__(
        self, said: str, *, code: int = ErrorCode.SASL_AUTHENTICATION_FAILED, advice: str = ""
    ) -> None:
        super().__init__(said)
        known = _KNOWN.get(code)
        self.code = code
        self.name = known.name if known is not None else f"ERROR_{code}"
        self.advice = advice or "Check the broker's log, and the sasl.* settings of both sides."


class TokenUnavailable(ClientError):
    """The token provider returned no OAuth token; the cause says why."""

    is_retriable = True
    advice = "Check oauth_token_provider, or the sasl.oauthbearer.* settings and the token endpoint."


class KafkaError(ClientError):
    """An error code in a broker's answer, with Kafka's name for it."""

    def __init__(self, code: int, message: str | None = None, *, subject: str = "") -> None:
        known = _KNOWN.get(code)
        self.code = code
        self.name = known.name if known is not None else f"ERROR_{code}"
        self.message = message
        self.is_retriable = known is not None and known.is_retriable
        self.advice = _ADVICE.get(code, "")
        said = message or (
            known.text if known is not None else "the broker answered with an unknown error code"
        )
        super().__init__(f"{subject + ': ' if subject else ''}{said.removesuffix('.')} ({self.name})")

    @property
    def is_unknown_topic(self) -> bool:
        return self.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

    @property
    def is_metadata_stale(self) -> bool:
        """Whether the error means that another broker must be asked."""
        return self.code in _STALE


class PartlyFailed(ClientError):
    """A request for several things failed for some of them: `failures` and `results`, by subject."""

    def __init__(self, failures: Mapping[Any, ClientError], results: Mapping[Any, Any]) -> None:
        self.failures = dict(failures)
        self.results = dict(results)
        first, *others = self.failures.values()
        self.is_retriable = all(error.is_retriable for error in self.failures.values())
        self.advice = first.advice
        more = f"; {len(others)} more failed" if others else ""
        super().__init__(f"{first}{more}")


_KNOWN = {int(code): code for code in ErrorCode}

_STALE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

_ADVICE: dict[int, str] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "Seek to an offset that the partition has.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Check the topic's name, and that the topic was created.",
    ErrorCode.UNKNOWN_TOPIC_ID: "The topic was deleted or created again; try again.",
    ErrorCode.MESSAGE_TOO_LARGE: "Raise max.message.bytes of the topic, or send smaller records or batches.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Use another name, or the existing topic.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "A name has 1 to 249 letters, digits, dots, dashes and underscores.",
    ErrorCode.INVALID_PARTITIONS: "A topic has at least one partition; the number cannot be reduced.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Use no more replicas than there are brokers.",
    ErrorCode.INVALID_CONFIG: "Check the key and its value.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Start the missing brokers, or lower min.insync.replicas of the topic.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The broker's disk is full or broken; check its log.",
    ErrorCode.GROUP_ID_NOT_FOUND: "Check the group's name; a group exists while it has members or offsets.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Stop the members that read the topic first.",
    ErrorCode.NON_EMPTY_GROUP: "Stop the members of the group first.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "Check the transactional id; unused ones expire.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Ask for access to the group.",
    ErrorCode.PRODUCER_FENCED: "A newer producer uses this transactional id; stop this one.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "A newer producer took over, or the transaction timed out.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The last transaction is still being completed; try again.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "Lower transaction.timeout.ms to the broker's maximum.",
    ErrorCode.TRANSACTION_ABORTABLE: "Abort the transaction and do its work again.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Ask for access to the transactional id.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Ask for access to the topic.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Ask for access to the cluster.",
    ErrorCode.TOPIC_DELETION_DISABLED: "The broker's delete.topic.enable is false.",
    ErrorCode.INVALID_RECORD: "A compacted topic accepts only records with keys.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "Choose another compression.type.",
    ErrorCode.INVALID_TIMESTAMP: "The record's timestamp is too far from the broker's clock for this topic.",
}


def describe_peer(first: bytes) -> str | None:
    """The protocol of a peer that is not the expected one, by the first bytes that it sent; None: unknown."""
    if first[:1] in (b"\x15", b"\x16") and first[1:2] == b"\x03":
        return "TLS"
    if first[:4] in (b"HTTP", b"<htm", b"<!DO"):
        return "HTTP"
    return "SSH" if first[:4] == b"SSH-" else None
