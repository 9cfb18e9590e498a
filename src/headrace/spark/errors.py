"""Errors of `format("headrace")`: wrong options, undecodable records, failed writes, rights.

Spark shows the traceback of a worker to whoever started the query. `without_frames` leaves out the client's
part of it: what a client reports is told by its message. Errors about lost records are in
headrace.client.threads.range_reader.
"""

from collections.abc import Mapping

from headrace.client.errors import ClientError, KafkaError, PartlyFailed
from headrace.protocol.errors import ErrorCode


class InvalidOption(ValueError):
    """An option, a combination of options or a DataFrame's schema is invalid."""


class Undecodable(ValueError):
    """A record does not have the format that keyFormat or valueFormat names."""


class SinkUnusable(Exception):
    """The sink cannot give the guarantee that the query needs."""


class MissingRight(Exception):
    """The user of the query lacks a right; the message says which one."""


# What to add to the answer of a broker that refuses, by its error code.
READING: Mapping[int, str] = {ErrorCode.TOPIC_AUTHORIZATION_FAILED: "reading needs READ on the topic"}
WRITING: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "writing needs WRITE on the topic",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "exactly-once needs WRITE on the transactional id that is named like the sink (txnAppId)"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "at-least-once needs WRITE on a topic",
}
DEAD_LETTERS: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "deadLetterTopic needs WRITE on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "deadLetterTopic needs WRITE on its topic",
}


def without_frames(error: ClientError, needs: Mapping[int, str]) -> Exception:
    """Return the error to raise in place of a client's: `raise without_frames(error, READING) from None`."""
    first = next(iter(error.failures.values())) if isinstance(error, PartlyFailed) else error
    if isinstance(first, KafkaError) and first.code in needs:
        return MissingRight(f"{error}: {needs[first.code]}; `headrace acl add` gives it to the query's user")
    return error.with_traceback(None)
