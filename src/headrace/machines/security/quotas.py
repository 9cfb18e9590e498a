"""Client quotas: which quota holds for a user and client id, or for an address, and who shares a meter.

There is a table for each kind of quota (`producer_byte_rate`, …). The first of Kafka's eight levels that has
a quota decides. All clients of a user share its quota, all users share that of a client id, and nobody shares
one of both. A default is a quota for each that it holds for, not one for all of them.

`version` is another object when a quota changes or meters are dropped: a connection keeps its meter together
with it, and asks again when it is another. Client ids are what clients say, so there can be any number of
them: meters that are idle go, and at the limit further clients share one meter per quota.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from headrace.base.limits import QUOTA_CLIENT_ID_CHARACTERS_MAX
from headrace.base.time import Instant
from headrace.machines.security.acl_rules import host_text
from headrace.machines.security.rates import DEFAULT_WINDOWS, Rate, TokenBucket, Windows

DEFAULT: Final = ""  # as a name: each that has no quota of its own. Kafka's names are never empty.

METERS_MAX = 10_000  # of one kind; some 5 MB. A cluster has hundreds.
METERS_FEW = 1_000  # up to here, idle ones are not looked for
LOOKED_AT = 2  # old meters for each new one, so that all are seen before their number doubles


class QuotaEntity(NamedTuple):
    """What a quota is for: a user, a client id, or both; None where it does not matter."""

    user: str | None
    client_id: str | None


class Meter(Protocol):
    bound: float

    def set_bound(self, bound: float, /) -> None: ...

    def is_idle(self, now: Instant, /) -> bool: ...


M = TypeVar("M", bound=Meter)


class Meters(Generic[M]):
    """Meters by who they are for, a bounded number."""

    def __init__(self, make: Callable[[float], M], limit: int = METERS_MAX, few: int = METERS_FEW) -> None:
        self._make = make
        self._limit = limit
        self._few = few
        self._meters: dict[object, M] = {}
        self._shared: dict[object, M] = {}
        self.version = object()

    def get(self, key: object, quota: object, bound: float, now: Instant) -> M:
        """The meter of a key, with this bound; `quota` is what the bound is from."""
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= self._few:
                self._drop_idle(now)
            if len(self._meters) >= self._limit:
                meter = self._shared.get(quota)
                if meter is None:
                    meter = self._shared[quota] = self._make(bound)
            else:
                meter = self._meters[key] = self._make(bound)
        if meter.bound != bound:
            meter.set_bound(bound)
        return meter

    def forget_quota(self, quota: object) -> None:
        self._shared.pop(quota, None)

    def __len__(self) -> int:
        return len(self._meters) + len(self._shared)

    def _drop_idle(self, now: Instant) -> None:
        """The oldest in the table are dropped or moved to its end."""
        for _ in range(min(LOOKED_AT, len(self._meters))):
            key = next(iter(self._meters))
            meter = self._meters.pop(key)
            if meter.is_idle(now):
                self.version = object()  # who keeps it has to ask for another
            else:
                self._meters[key] = meter


class ClientQuotas(Generic[M]):
    """One kind of quota of users and client ids."""

    def __init__(self, make: Callable[[float], M], limit: int = METERS_MAX, few: int = METERS_FEW) -> None:
        self._bounds: dict[QuotaEntity, float] = {}
        self._meters = Meters(make, limit, few)

    @property
    def version(self) -> object:
        return self._meters.version

    @property
    def is_empty(self) -> bool:
        """Whether nobody has a quota."""
        return not self._bounds

    def change(self, entity: QuotaEntity, bound: float | None) -> None:
        """None removes the quota."""
        if bound is None:
            self._bounds.pop(entity, None)
            self._meters.forget_quota(entity)
        else:
            self._bounds[entity] = bound
        self._meters.version = object()

    def find(self, user: str, client_id: str) -> tuple[QuotaEntity, float] | None:
        """The quota that holds, and its bound; None if there is none."""
        bounds = self._bounds
        if not bounds:
            return None
        for entity in levels(user, client_id):
            bound = bounds.get(entity)
            if bound is not None:
                return entity, bound
        return None

    def meter(self, user: str, client_id: str, now: Instant) -> M | None:
        """None: without limit. It holds as long as `version` is the same."""
        found = self.find(user, client_id)
        if found is None:
            return None
        entity, bound = found
        # who counts together: those that the level does not tell apart
        key = (
            None if entity.user is None else user,
            None if entity.client_id is None else _short(client_id),
        )
        return self._meters.get(key, entity, bound, now)

    def __len__(self) -> int:
        return len(self._meters)


def _short(client_id: str) -> str:
    """It, or what stands for one that is too long to be kept."""
    if len(client_id) <= QUOTA_CLIENT_ID_CHARACTERS_MAX:
        return client_id
    return f"sha256\0{sha256(client_id.encode()).hexdigest()}"


def levels(user: str, client_id: str) -> tuple[QuotaEntity, ...]:
    """Kafka's eight, the first that has a quota decides."""
    return (
        QuotaEntity(user, client_id),
        QuotaEntity(user, DEFAULT),
        QuotaEntity(user, None),
        QuotaEntity(DEFAULT, client_id),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT, None),
        QuotaEntity(None, client_id),
        QuotaEntity(None, DEFAULT),
    )


def byte_rates(windows: Windows = DEFAULT_WINDOWS) -> ClientQuotas[Rate]:
    """For `producer_byte_rate` and `consumer_byte_rate`."""
    return ClientQuotas(lambda bound: Rate(bound, windows))


def request_percentages(windows: Windows = DEFAULT_WINDOWS) -> ClientQuotas[Rate]:
    """For `request_percentage`: what is recorded is `percent`; no throttle is longer than a window."""
    return ClientQuotas(lambda bound: Rate(bound, windows, throttle_ms_max=_window_ms(windows)))


def percent(seconds: float) -> float:
    """Time of the event loop as an amount of request_percentage: a second is 100."""
    return seconds * 100


def mutation_rates(windows: Windows = DEFAULT_WINDOWS) -> ClientQuotas[TokenBucket]:
    """For `controller_mutation_rate`, by windows of `controller.quota.window.*`."""
    return ClientQuotas(lambda bound: TokenBucket(bound, windows))


class QuotaTables:
    """The quotas of all kinds, by the keys of the metadata."""

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self.produce = byte_rates(windows)
        self.fetch = byte_rates(windows)
        self.request = request_percentages(windows)
        self.mutations = mutation_rates(mutation_windows)
        self.connections = ConnectionRates(windows)
        self._versions: tuple[object, ...] | None = None
        self._version: object | None = None

    def change(
        self, user: str | None, client_id: str | None, ip: str | None, key: str, bound: float | None
    ) -> None:
        """None removes the quota. Keys that we do not know are kept in the metadata and limit nothing."""
        if ip is not None:
            if key == "connection_creation_rate":
                self.connections.change(ip, bound)
            return
        entity = QuotaEntity(user, client_id)
        if key == "producer_byte_rate":
            self.produce.change(entity, bound)
        elif key == "consumer_byte_rate":
            self.fetch.change(entity, bound)
        elif key == "request_percentage":
            self.request.change(entity, bound)
        elif key == "controller_mutation_rate":
            self.mutations.change(entity, bound)

    def meters(self, user: str, client_id: str, now: Instant) -> tuple[Rate | None, Rate | None, Rate | None]:
        """Those of bytes produced, bytes fetched, and time."""
        return (
            self.produce.meter(user, client_id, now),
            self.fetch.meter(user, client_id, now),
            self.request.meter(user, client_id, now),
        )

    @property
    def version(self) -> object | None:
        """Of what `meters` returns; None while no user and no client id has a quota."""
        tables = (self.produce, self.fetch, self.request, self.mutations)
        if all(table.is_empty for table in tables):
            return None
        versions = (self.produce.version, self.fetch.version, self.request.version)
        if versions != self._versions:
            self._versions, self._version = versions, object()
        return self._version


class ConnectionRates:
    """`connection_creation_rate` of addresses."""

    def __init__(
        self, windows: Windows = DEFAULT_WINDOWS, limit: int = METERS_MAX, few: int = METERS_FEW
    ) -> None:
        self._bounds: dict[str, float] = {}
        ms_max = _window_ms(windows)
        self._meters = Meters(lambda bound: Rate(bound, windows, throttle_ms_max=ms_max), limit, few)

    def change(self, address: str, bound: float | None) -> None:
        """DEFAULT is for each address that has no quota of its own; None removes the quota."""
        address = host_text(address)
        if bound is None:
            self._bounds.pop(address, None)
            self._meters.forget_quota(address)
        else:
            self._bounds[address] = bound

    def admit(self, address: str, now: Instant) -> int:
        """0 if a connection may be made, or for how many milliseconds it is held before it is closed.

        A connection that is not made does not count. `address` as `host_text` writes it.
        """
        if not self._bounds:
            return 0
        quota = address
        bound = self._bounds.get(address)
        if bound is None:
            quota, bound = DEFAULT, self._bounds.get(DEFAULT)
        if bound is None:
            return 0
        meter = self._meters.get(address, quota, bound, now)
        throttle_ms = meter.record(1, now)
        if throttle_ms:
            meter.add(-1, now)
        return throttle_ms

    def __len__(self) -> int:
        return len(self._meters)


def _window_ms(windows: Windows) -> int:
    return round(windows.size_s * 1000)
