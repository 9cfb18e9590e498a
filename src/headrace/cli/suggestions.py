"""The closest existing name when a topic, a group or a subject does not exist."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

from headrace.client.admin.topics import TopicDescription
from headrace.client.errors import ClientError, KafkaError, PartlyFailed
from headrace.client.threads.admin import Admin
from headrace.protocol.errors import ErrorCode

LIKENESS = 0.6  # difflib's own: one letter in three may differ


def closest(name: str, known: Iterable[str]) -> str | None:
    """The name that was most likely meant, whatever its case."""
    by_lower = {each.lower(): each for each in known if each != name}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=LIKENESS)
    return by_lower[found[0]] if found else None


def describe_topics(admin: Admin, names: Sequence[str]) -> dict[str, TopicDescription]:
    """Raises for the first that does not exist, and suggests the closest name."""
    with suggesting_topics(admin, names):
        return admin.describe_topics(names)


def describe_topic(admin: Admin, name: str) -> TopicDescription:
    return describe_topics(admin, [name])[name]


@contextmanager
def suggesting_topics(admin: Admin, names: Sequence[str]) -> Iterator[None]:
    def known() -> list[str]:
        return [topic.name for topic in admin.list_topics(internal=True)]

    with _suggesting(names, known, _is_unknown_topic, "headrace topic list"):
        yield


@contextmanager
def suggesting_groups(admin: Admin, names: Sequence[str]) -> Iterator[None]:
    def known() -> list[str]:
        return [group.group for group in admin.list_groups()]

    with _suggesting(names, known, _is_unknown_group, "headrace group list"):
        yield


@contextmanager
def _suggesting(
    names: Sequence[str],
    list_known: Callable[[], list[str]],
    is_unknown: Callable[[ClientError], bool],
    command: str,
) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        failures = error.failures if isinstance(error, PartlyFailed) else dict.fromkeys(names, error)
        if is_unknown(next(iter(failures.values()), error)):
            _suggest(error, next(iter(failures), ""), list_known, command)
        raise


def _suggest(error: ClientError, name: object, list_known: Callable[[], list[str]], command: str) -> None:
    try:
        known = list_known()
    except ClientError:  # the error that we have matters more
        return
    meant = closest(str(name), known)
    if meant is not None:
        error.advice = f"Did you mean {meant}? `{command}` shows all."


def _is_unknown_topic(error: ClientError) -> bool:
    return isinstance(error, KafkaError) and error.is_unknown_topic


def _is_unknown_group(error: ClientError) -> bool:
    return isinstance(error, KafkaError) and error.code == ErrorCode.GROUP_ID_NOT_FOUND
