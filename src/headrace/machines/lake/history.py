"""Which old versions of a table no query can need any more."""

from collections.abc import Sequence


def outlived(made_ms: Sequence[int], since_ms: int) -> list[int]:
    """Return the places of versions that were replaced before a moment; the last one never is.

    A query may have begun just before a version was replaced. So what counts is when the next one was made.
    """
    return [place for place, next_ms in enumerate(made_ms[1:]) if next_ms < since_ms]
