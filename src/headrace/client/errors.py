"""Errors of the client: each says whether a retry helps, and what to do."""

from collections.abc import Mapping
from typing import Any

from headrace.protocol.errors import ErrorCode


class ClientError(Exception):
    """Base of all that a client raises."""

    is_retriable = False
    advice = ""


class Unreachable(ClientError):
    """No broker could be connected to."""

    is_retriable = True
    advice = "Check the address, and that a broker is running there."


class ConnectionLost(ClientError):
    """The peer ended the connection; what was unanswered may or may not have happened."""

    is_retriable = True
    advice = "Look at the broker's log; it may be restarting."


class TimedOut(ClientError):
    """No answer in time; what was asked may or may not have happened."""

    is_retriable = True
    advice = "The broker is overloaded or not responding; a longer timeout may help."


class BadResponse(ClientError):
    """The peer breaks the protocol: it is not a Kafka broker, or a broken one."""

    advice = "Check that the address and port belong to a plaintext Kafka listener."


class UnsupportedByBroker(ClientError):
    """The broker does not serve this API, or in none of the versions we speak."""

    advice = "Use a broker that supports it."

    def __init__(self, api: str, offered: tuple[int, int] | None = None) -> None:
        detail = "" if offered is None else f" (it speaks versions {offered[0]} to {offered[1]}, we do not)"
        super().__init__(f"the broker does not support {api}{detail}")
        self.api = api


class ClientBroken(ClientError):
    """The client cannot go on: a mistake in its own code, whose trace is the cause, or a process that was
    forked.
    """

    advice = "Close it and make a new one; if it was not a fork, please report the trace."


class InvalidInput(ClientError):
    """The caller asked for something that cannot be: a partition that does not exist, a record without
    room.
    """


class Closed(InvalidInput):
    """What was closed cannot be used any more."""


class ConcurrentUse(InvalidInput):
    """Two threads use at once what belongs to one of them."""

    advice = "Give every thread a consumer of its own; wakeup() alone may be called from elsewhere."


class WokenUp(ClientError):
    """`wakeup()` ended a call that was waiting; nothing else is wrong."""


class PartitionsLost(ClientError):
    """Partitions went to others before offsets of them could be committed."""

    advice = "Poll: the listener is told; whoever has the partitions now reads from the last commit on."


class OutsideTransaction(InvalidInput):
    """A transactional producer sends records and offsets only inside a transaction."""

    advice = "Send inside `with producer.transaction():`, or after begin_transaction()."


class ProducerClosed(Closed):
    """The producer was closed and takes nothing more."""

    advice = "Make another producer; close one only when nobody sends any more."


class RecordLost(ClientError):
    """Records were not acknowledged in time; without an acknowledgement nobody knows whether the broker has
    them.
    """

    advice = "Look at the broker's log, then send the records again; what was acknowledged is not lost."


class NoOffset(ClientError):
    """A partition has no committed offset, and auto.offset.reset says that this is an error."""

    advice = "Seek to where reading has to begin, or set auto.offset.reset to earliest or latest."


class LogTruncation(ClientError):
    """Records that were read are no longer in the log, which holds others in their place (KIP-320); told
    where auto.offset.reset says that a lost position is an error.
    """

    advice = "Undo what came of the records that are gone, then seek to go on."

    def __init__(self, message: str, *, topic: str, partition: int, offset: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset  # from which on the log differs; -1: everywhere, or nobody knows


class BufferExhausted(ClientError):
    """Records came faster than they could be delivered, and no room was left for `max.block.ms`."""

    is_retriable = True
    advice = "Send more slowly, raise buffer.memory or max.block.ms, or look why the broker is slow."


class TransactionMustAbort(ClientError):
    """Something in the transaction failed, so that it can only be aborted; the cause says what."""

    advice = "Abort the transaction, then do its work again in a new one."


class TransactionAborted(ClientError):
    """The record was not sent, or does not count: its transaction was aborted."""

    advice = "Send it again in a new transaction."


class ProducerUnusable(ClientError):
    """The producer can do nothing more: another one with its transactional id took over, or it has no right
    to it; the cause says which.
    """

    advice = "Close it; make a new one if no other process is to own the transactional id."


class TlsFailed(ClientError):
    """No trust between us and the broker: a certificate, a version or a name does not fit."""

    def __init__(self, said: str, *, advice: str = "") -> None:
        super().__init__(said)
        self.advice = advice or "Look at the broker's log, and at the ssl.* settings of both sides."


class AuthenticationFailed(ClientError):
    """The broker did not let us in, or could not show who it is."""

    def __init__(
        self, said: str, *, code: int = ErrorCode.SASL_AUTHENTICATION_FAILED, advice: str = ""
    ) -> None:
        super().__init__(said)
        known = _KNOWN.get(code)
        self.code = code
        self.name = known.name if known is not None else f"ERROR_{code}"
        self.advice = advice or "Look at the broker's log, and at the sasl.* settings of both sides."


class TokenUnavailable(ClientError):
    """Whoever gives out OAuth tokens gave none; the cause says why."""

    is_retriable = True
    advice = "Look at oauth_token_provider, or at the sasl.oauthbearer.* settings and the token endpoint."


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
            known.text if known is not None else "the broker answered with a code that we do not know"
        )
        super().__init__(f"{subject + ': ' if subject else ''}{said.removesuffix('.')} ({self.name})")

    @property
    def is_unknown_topic(self) -> bool:
        return self.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

    @property
    def is_metadata_stale(self) -> bool:
        """Whether the broker we asked is, as it says, not the one to ask."""
        return self.code in _STALE


class PartlyFailed(ClientError):
    """Some of what was asked for together failed, the rest is done: `failures` and `results`, by subject."""

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
    ErrorCode.TOPIC_ALREADY_EXISTS: "Use another name, or the topic that is there.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "A name has 1 to 249 letters, digits, dots, dashes and underscores.",
    ErrorCode.INVALID_PARTITIONS: "A topic has one partition or more, and never fewer than before.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Use no more replicas than there are brokers.",
    ErrorCode.INVALID_CONFIG: "Check the key and its value.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Bring brokers back, or lower min.insync.replicas of the topic.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The broker's disk is full or broken; look at its log.",
    ErrorCode.GROUP_ID_NOT_FOUND: "Check the group's name; a group exists while it has members or offsets.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Stop the members that read the topic first.",
    ErrorCode.NON_EMPTY_GROUP: "Stop the members of the group first.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "Check the transactional id; brokers forget one that is not used.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Ask for access to the group.",
    ErrorCode.PRODUCER_FENCED: "Another producer with this transactional id began later; end this one.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "Another producer took over, or the transaction's time was over.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The last transaction is being completed; try again.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "Lower transaction.timeout.ms to the broker's maximum.",
    ErrorCode.TRANSACTION_ABORTABLE: "Abort the transaction and do its work again.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Ask for access to the transactional id.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Ask for access to the topic.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Ask for access to the cluster.",
    ErrorCode.TOPIC_DELETION_DISABLED: "The broker's delete.topic.enable is false.",
    ErrorCode.INVALID_RECORD: "A compacted topic takes only records with keys.",
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
