"""Selection of a broker when any will do, and backoff for those that failed.

Of every address it remembers only failures: one that answers is as good as new. The pause before the next
connection doubles with every failure, as does the time that the connection may take; both are spread, so
that many clients that lost the same broker do not come back in step.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.base.dice import Dice
from headrace.base.time import Instant
from headrace.client.backoff import backoff
from headrace.client.cluster import Address
from headrace.client.errors import ClientError
from headrace.client.settings.network import NetworkSettings

# Brokers that failed and were never heard of again: beyond this many the one that failed first is forgotten.
REMEMBERED_MAX = 1000


@dataclass(slots=True)
class _Failing:
    failures: int
    connect_at: Instant
    error: ClientError


class BrokerSelection:
    """Invariant: an address is in `_failing` from its failure until a connection to it is ready."""

    def __init__(self, settings: NetworkSettings, dice: Dice) -> None:
        self._settings = settings
        self._dice = dice
        self._failing: dict[Address, _Failing] = {}
        self._turn = dice.randrange(1 << 16)  # not all clients begin with the same broker

    def choose(self, now: Instant, known: Iterable[Address], connected: Collection[Address]) -> Address:
        """For a request that any broker can answer.

        Brokers that the cluster named come before bootstrap addresses, which may be other names for the
        same; those that did not fail before those that did; and those we are connected to before others.
        Among equals it goes round.
        """
        self._turn += 1
        named = dict.fromkeys(known)
        brokers = self._rotated(list(named))
        if not brokers or self._settings.may_rebootstrap:
            others = [address for address in self._settings.bootstrap if address not in named]
            brokers += self._rotated(others)

        def merit(address: Address) -> tuple[bool, int, bool, bool]:
            failing = self._failing.get(address)
            return (
                failing is not None and now < failing.connect_at,
                0 if failing is None else failing.failures,
                address not in named,
                address not in connected,
            )

        return min(brokers, key=merit)  # the first of the best

    def _rotated(self, addresses: list[Address]) -> list[Address]:
        start = self._turn % max(1, len(addresses))
        return addresses[start:] + addresses[:start]

    def connect_at(self, address: Address) -> Instant:
        """Not before this moment."""
        failing = self._failing.get(address)
        return Instant(0.0) if failing is None else failing.connect_at

    def setup_s(self, address: Address) -> float:
        """How long the next connection may take until it is ready."""
        failing = self._failing.get(address)
        first_s, last_s = self._settings.setup_first_s, self._settings.setup_last_s
        if failing is None:
            return first_s
        return backoff(failing.failures, self._dice, first_s=first_s, last_s=last_s)

    def last_error(self, address: Address) -> ClientError | None:
        failing = self._failing.get(address)
        return None if failing is None else failing.error

    def connected(self, address: Address) -> None:
        """A connection to it is ready."""
        self._failing.pop(address, None)

    def failed(self, now: Instant, address: Address, error: ClientError) -> None:
        """A connection to it could not be made, or broke."""
        failing = self._failing.pop(address, None)
        failures = 0 if failing is None else failing.failures
        first_s, last_s = self._settings.reconnect_first_s, self._settings.reconnect_last_s
        pause_s = backoff(failures, self._dice, first_s=first_s, last_s=last_s)
        self._failing[address] = _Failing(failures + 1, Instant(now + pause_s), error)
        if len(self._failing) > REMEMBERED_MAX:
            del self._failing[next(iter(self._failing))]
