"""The consumer that a command works with: it reads assigned partitions, and never creates a topic."""

from headrace.cli.client_settings import settings_of
from headrace.client.threads.consumer import Consumer

POLL_RECORDS_MAX = 10_000


def reader(
    bootstrap: str,
    timeout: float,
    *,
    committed: bool = False,
    group: str | None = None,
    first: str = "none",
) -> Consumer:
    """With a group, `first` (earliest or latest) is where it begins where it has no offset. Without one, an
    offset that does not exist is an error.
    """
    own: dict[str, object] = {} if group is None else {"group_id": group, "enable_auto_commit": False}
    settings = settings_of(
        "consumer",
        bootstrap,
        allow_auto_create_topics=False,
        auto_offset_reset=first,
        default_api_timeout_ms=round(timeout * 1000),
        isolation_level="read_committed" if committed else "read_uncommitted",
        max_poll_records=POLL_RECORDS_MAX,
        **own,
    )
    return Consumer(settings)
