"""Under which subject a schema is registered: Confluent's three strategies."""

from collections.abc import Callable

from headrace.schemas.errors import SchemaError

# topic, part ("key" or "value") and the record's full name, in that order
SubjectNaming = Callable[[str, str, str | None], str]


def by_topic(topic: str, part: str, record: str | None) -> str:
    """One kind of record per topic: clicks-value."""
    return f"{topic}-{part}"


def by_record(topic: str, part: str, record: str | None) -> str:
    """One history per kind of record, wherever it is sent: shop.Click."""
    return _named(record)


def by_topic_and_record(topic: str, part: str, record: str | None) -> str:
    """Several kinds of records in a topic, each with its history there: clicks-shop.Click."""
    return f"{topic}-{_named(record)}"


def _named(record: str | None) -> str:
    if record is None:
        raise SchemaError("the subject's name is made of the record's, and the schema has none")
    return record
