"""Tuples that the garbage collector need not look at; it matters where there are millions."""


def untrack(values: tuple[object, ...]) -> None:
    """Tells the collector that a new tuple cannot be part of a cycle: it has numbers, strings, bytes and sets
    of such tuples.

    It would find that out itself, but too late for the dict that has the tuple by then: it would walk through
    all dicts of committed offsets while they are loaded, in pauses of ten milliseconds.

    Compiled modules call what untracked.pxd defines under this name; interpreted ones leave it to the
    collector.
    """
