"""Errors of lake tables. Each is the user's to solve, and says how."""

from headrace.client.errors import ClientError


class LakeError(ClientError):
    """Base class of the errors of lake tables."""


class NotALakeTable(LakeError):
    """The path has no table, or one that Headrace did not make."""


class WrongTable(LakeError):
    """The table cannot be used for this topic, or has properties that break its promises."""


class TopicTruncated(LakeError):
    """The topic ends before the offsets that the table holds: its log was cut."""

    advice = "The table has records that the topic lost. Make a new table for what the topic has now."


class RecordsLost(LakeError):
    """The topic deleted records before they were copied."""

    advice = "Allow loss to go on without them; the table then says which ones it lacks."


class BadRecord(LakeError):
    """A record cannot be a row of a table with typed columns."""

    advice = "Name a table for dead letters to copy such records there, with the reason."


class Damaged(LakeError):
    """The rows of a file do not agree with its proof."""

    advice = "`headrace lake verify` shows all faults of the table."
