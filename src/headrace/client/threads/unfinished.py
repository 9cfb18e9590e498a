"""A word at the end of a program that leaves records behind: they are lost, and nobody else would tell."""

import atexit
import logging
import weakref

from headrace.client.producer.outbox import Outbox

_log = logging.getLogger("headrace.producer")
_watched: weakref.WeakSet[Outbox] = weakref.WeakSet()


def watch(outbox: Outbox) -> None:
    _watched.add(outbox)


def _tell() -> None:
    for outbox in list(_watched):
        left = outbox.accumulator.buffered_bytes
        if left and not outbox.sending.is_closed:
            _log.warning(
                "%d bytes of records were not delivered before the program's end; call flush() or close()",
                left,
            )


atexit.register(_tell)
