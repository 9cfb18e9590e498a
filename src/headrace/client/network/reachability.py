"""Reachability of brokers: which cannot be reached, since when and why; the choice of one, and backoff.

The sockets report every connection that is ready, fails or takes long; waiting calls ask. An address that
cannot be reached for a second is worth a warning, and another every 30 s; the sockets log them. When no
broker can be reached, that is an outage: calls name it in their errors, and end early if
`headrace.unreachable.timeout.ms` is set.

The brokers that the cluster names are what matters. Bootstrap addresses matter until it has named some: a
bootstrap address that works is of no use if the brokers that it names cannot be reached.

`BrokerSelection` chooses a broker when any will do. It remembers only the failures of an address; an answer
resets them. The pause before the next connection doubles with every failure, and so does the timeout of the
connection. Both are spread at random, so that many clients that lost the same broker do not reconnect at the
same time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.backoff import backoff
from headrace.client.cluster import Address
from headrace.client.errors import ClientError, Unreachable
from headrace.client.settings.network import NetworkSettings

# Addresses in trouble that are remembered; those that nobody connects to any more are never heard of again.
TROUBLES_MAX = 1000


class Outage(NamedTuple):
    """No broker can be reached."""

    since: Instant
    address: Address  # the one that was tried last
    error: ClientError  # what came of it

    def __str__(self) -> str:
        said = str(self.error)
        return said if str(self.address) in said else f"{self.address}: {said}"


@dataclass(slots=True)
class _Trouble:
    since: Instant
    warn_at: Instant
    was_logged: bool = False


class Reachability:
    """Every thread may read `outage`; only the thread that drives the sockets uses the rest."""

    SLOW_S = 1.0  # how long a connection may take before that counts as a failure, too
    WARN_AFTER_S = 1.0
    WARN_AGAIN_S = 30.0

    def __init__(self, limit_s: float | None = None) -> None:
        """`limit_s`: after so long an outage calls that wait raise; None: they wait as long as they may."""
        self.outage: Outage | None = None
        self.limit_s = limit_s
        self._brokers: Collection[Address] = ()
        self._connected: dict[Address, int] = {}  # how many connections are ready
        self._connected_until = Instant(0.0)  # when the last one of all was lost
        self._troubles: dict[Address, _Trouble] = {}

    # What calls ask

    def give_up_at(self) -> Instant:
        """When calls that wait are to raise, if the outage lasts."""
        if self.outage is None or self.limit_s is None:
            return NEVER
        return Instant(self.outage.since + self.limit_s)

    def check(self, now: Instant) -> None:
        """Raises if the outage has lasted for too long."""
        if now >= self.give_up_at():
            raise self.as_error(now)

    def as_error(self, now: Instant) -> Unreachable:
        """The error of a call that ends because of the outage."""
        outage = self.outage
        assert outage is not None
        lasted_s = round(max(0.0, now - outage.since), 1)
        error = Unreachable(f"no broker could be reached for {lasted_s:g} s: {outage}")
        error.advice = outage.error.advice
        error.__cause__ = outage.error
        return error

    # What the sockets report

    def named(self, brokers: Collection[Address]) -> None:
        """The brokers that the cluster has named last."""
        if brokers != self._brokers:
            self._brokers = brokers
            self._update_outage()

    def reached(self, now: Instant, address: Address) -> str | None:
        """A connection is ready; gives what to log if the address was in trouble."""
        self._connected[address] = self._connected.get(address, 0) + 1
        trouble = self._troubles.pop(address, None)
        self._update_outage()
        if trouble is None or not trouble.was_logged:
            return None
        return f"{address} can be reached again, after {now - trouble.since:.0f} s"

    def left(self, now: Instant, address: Address) -> None:
        """A connection that was ready is no more."""
        self._connected[address] -= 1
        if not self._connected[address]:
            del self._connected[address]
            if not self._connected:
                self._connected_until = now

    def failed(self, now: Instant, address: Address, error: ClientError, *, since: Instant) -> str | None:
        """A connection that was begun at `since` is not ready: it failed, or takes long. Gives a warning to
        log, if one is due.
        """
        trouble = self._troubles.get(address)
        if trouble is None:
            if len(self._troubles) >= TROUBLES_MAX:
                del self._troubles[next(iter(self._troubles))]
            trouble = self._troubles[address] = _Trouble(since, Instant(since + self.WARN_AFTER_S))
        self._update_outage((address, error))
        if now < trouble.warn_at:
            return None
        trouble.warn_at = Instant(now + self.WARN_AGAIN_S)
        trouble.was_logged = True
        problem = Outage(trouble.since, address, error)
        return f"{problem} (for {now - trouble.since:.0f} s). {error.advice}"

    def _update_outage(self, last: tuple[Address, ClientError] | None = None) -> None:
        troubled = [address for address in self._troubles if self._is_relevant(address)]
        if not troubled or any(self._is_relevant(address) for address in self._connected):
            self.outage = None
            return
        since = Instant(max(self._connected_until, min(self._troubles[each].since for each in troubled)))
        if last is not None and self._is_relevant(last[0]):
            self.outage = Outage(since, *last)
        elif self.outage is not None:
            self.outage = self.outage._replace(since=since)

    def _is_relevant(self, address: Address) -> bool:
        return not self._brokers or address in self._brokers


# Brokers that failed and were never heard of again: beyond this many the one that failed first is forgotten.
REMEMBERED_MAX = 1000


@dataclass(slots=True)
class _Failing:
    failures: int
    connect_at: Instant
    error: ClientError


class BrokerSelection:
    """Invariant: an address is in `_failing` from its failure until a connection to it is ready."""

    def __init__(self, settings: NetworkSettings, rng: Randomness) -> None:
        self._settings = settings
        self._rng = rng
        self._failing: dict[Address, _Failing] = {}
        self._turn = rng.randrange(1 << 16)  # not all clients begin with the same broker

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
        return backoff(failing.failures, self._rng, first_s=first_s, last_s=last_s)

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
        pause_s = backoff(failures, self._rng, first_s=first_s, last_s=last_s)
        self._failing[address] = _Failing(failures + 1, Instant(now + pause_s), error)
        if len(self._failing) > REMEMBERED_MAX:
            del self._failing[next(iter(self._failing))]
