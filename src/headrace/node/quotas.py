"""Quotas: how much clients may use, and for how long those that use more are throttled. All parts ask here.

As in Kafka (KIP-219), who exceeds a quota is answered at once. The answer tells the throttle time, and for so
long nothing is read from the connection (`Waiting.mute`). The answer to a throttled fetch has no records.

`version` is None while no user or client id has a quota. Otherwise it is another object after each change: a
fast path remembers the meters of its client together with the version, and asks again when it is another one.
Connections of other nodes to controllers, and those of the process itself, have no quotas.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.base.limits import QUOTA_CLIENT_ID_CHARACTERS_MAX
from headrace.base.numbers import INT32_MAX
from headrace.base.time import Instant, Now
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.security_image import ClientQuotaEntity, entity_of
from headrace.machines.security.acl_rules import host_text
from headrace.node.connection import NODE_ITSELF, Connection
from headrace.node.metrics import Throttled
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.protocol.api import ApiKey
from headrace.protocol.metadata_records import ClientQuotaRecord
from headrace.protocol.notation import Data

if TYPE_CHECKING:
    from headrace.machines.security.quotas import QuotaTables
    from headrace.machines.security.rates import Rate, TokenBucket

# What throttles, for metrics.
PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION = "produce", "fetch", "request", "mutation", "connection"
KINDS = (PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION)

# Requests whose bytes count for producer_byte_rate.
WITH_RECORDS = frozenset((ApiKey.PRODUCE, ApiKey.APPEND_AT))

# Clients whose meters are remembered: then all are looked up again. Some 2 MB.
CLIENTS_MAX = 10_000

UNLIMITED = INT32_MAX  # max.connection.creation.rate


class ClientMeters:
    """The meters of one user and client id; None: without a limit."""

    __slots__ = ("fetch", "produce", "request")

    def __init__(self, produce: "Rate | None", fetch: "Rate | None", request: "Rate | None") -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request

    def fetch_bytes_max(self, limit: int, now: Instant) -> int:
        """The most that one fetch may return: an answer that does not fit would be refused as a whole."""
        rate = self.fetch
        if rate is None or (now < rate.ends and rate.free - rate.total >= 2 * limit):  # half of it, and more
            return limit
        return min(limit, int(rate.portion(now)))

    def takes(self, rate: "Rate | None", amount: float, now: Instant) -> bool:
        """Counts for one of its rates, if that and its requests are far from their bounds: what most answers
        need, in one call. False: nothing was counted, and the throttle time has to be found out.
        """
        request = self.request
        if request is not None:
            if now >= request.ends or request.total > request.free:
                return False
            request.last = now
        if rate is not None:
            if now >= rate.ends or rate.total + amount > rate.free:
                return False
            rate.total += amount
            rate.last = now
        return True

    def spent(self, seconds: float, now: Now) -> None:
        """The event loop has worked so long for the client, whose next answer tells what comes of it."""
        if self.request is not None:
            self.request.add(seconds * 100, now.mono)


class RememberedMeters:
    """The meters of a client, for a fast path: it asks again when the quotas have changed."""

    __slots__ = ("_client_id", "_meters", "_version")

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._meters: ClientMeters | None = None
        self._version: object | None = None

    def current(self, now: Now, quotas: "Quotas", connection: Connection) -> ClientMeters | None:
        if self._version is not quotas.version:
            self._meters = quotas.of(now, connection, self._client_id)
            self._version = quotas.version  # only now: looking a client up may drop meters of others
        return self._meters


class MutationQuota:
    """`controller_mutation_rate` for one request: how many partitions it may create or delete (KIP-599)."""

    __slots__ = ("_bucket", "_is_strict", "_now", "throttle_ms")

    def __init__(self, bucket: "TokenBucket | None", now: Now, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._now = now
        self._is_strict = is_strict
        self.throttle_ms = 0

    def admits(self, partitions: int) -> bool:
        """False: THROTTLING_QUOTA_EXCEEDED. Clients that do not know this code are only throttled."""
        if self._bucket is None:
            return True
        throttle_ms = self._bucket.spend(partitions, self._now.mono, is_strict=self._is_strict)
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        return not throttle_ms or not self._is_strict


class Quotas:
    __slots__ = (
        "_clients",
        "_controllers",
        "_creation_rates",
        "_settings",
        "_tables",
        "changed",
        "throttled",
        "version",
    )

    def __init__(self, settings: LiveSettings) -> None:
        self.version: object | None = None
        self.throttled = {kind: Throttled() for kind in KINDS}
        self.changed: Callable[[Now], None] = lambda now: None  # called when quotas of clients have changed
        self._settings = settings
        self._controllers = frozenset(settings.current.controller_listener_names)
        self._tables: QuotaTables | None = None  # None: there was never a quota
        self._clients: dict[tuple[str, str | None], ClientMeters | None] = {}
        self._creation_rates: dict[str, Rate] = {}  # of new connections, by listener; "" is all of them

    # --- the quotas --------------------------------------------------------------------------------------

    def load(self, quotas: dict[ClientQuotaEntity, dict[str, float]]) -> None:
        """Those that the node has when it starts."""
        for entity, values in quotas.items():
            for key, bound in values.items():
                self._change(entity, key, bound)
        self._look_at_version()

    def committed(self, now: Now, image: ClusterImage, records: list[Data]) -> None:
        has_changed = False
        for record in records:
            if isinstance(record, ClientQuotaRecord):
                self._change(entity_of(record), record.key, None if record.remove else record.value)
                has_changed = True
        if has_changed:
            self._look_at_version()
            self.changed(now)

    def _change(self, entity: ClientQuotaEntity, key: str, bound: float | None) -> None:
        if self._tables is None:
            from headrace.machines.security.quotas import QuotaTables
            from headrace.machines.security.rates import Windows

            settings = self._settings.current
            self._tables = QuotaTables(
                Windows(settings.quota_window_num, settings.quota_window_size_seconds),
                Windows(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds),
            )
        self._tables.change(entity.user, entity.client_id, entity.ip, key, bound)

    def _look_at_version(self) -> None:
        """A quota has changed, or a meter was dropped: nothing that was remembered holds."""
        version = None if self._tables is None else self._tables.version
        if version is not self.version:
            self.version = version
            self._clients.clear()

    # --- clients -----------------------------------------------------------------------------------------

    def of(self, now: Now, connection: Connection, client_id: str | None) -> ClientMeters | None:
        """The meters of a client, as long as `version` is the same; None: it has no quota."""
        tables = self._tables
        if self.version is None or tables is None or self.is_exempt(connection):
            return None
        key = (connection.principal, client_id)
        try:
            meters = self._clients[key]
        except KeyError:
            user = connection.principal.partition(":")[2]
            found = tables.meters(user, client_id or "", now.mono)
            meters = None if found == (None, None, None) else ClientMeters(*found)
            self._look_at_version()  # meters of others may have been dropped
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.clear()
            if client_id is None or len(client_id) <= QUOTA_CLIENT_ID_CHARACTERS_MAX:
                self._clients[key] = meters
        connection.meters = meters
        return meters

    def is_exempt(self, connection: Connection) -> bool:
        """Whether it is a client inside the process, or another node's connection to the controller."""
        return connection.principal == NODE_ITSELF or connection.listener in self._controllers

    # --- requests and answers ----------------------------------------------------------------------------

    def arrived(self, request: Request) -> None:
        """Counts the bytes of a request with records, also if its client does not wait for the answer."""
        if request.route.api_key in WITH_RECORDS:
            meters = self.of(request.now, request.connection, request.client_id)
            if meters is not None and meters.produce is not None:
                meters.produce.add(request.size, request.now.mono)

    def throttle_ms(self, now: Now, request: Request, told_ms: int) -> int:
        """For how long the client of a request is throttled that is answered now.

        `told_ms` is what its handler, or the controller, has said already.
        """
        api_key = request.route.api_key
        if request.is_exempt:
            return told_ms
        meters = self.of(now, request.connection, request.client_id)
        if meters is None:
            return told_ms
        if api_key in WITH_RECORDS:
            return self.produced(now, meters, 0)
        request_ms = 0 if meters.request is None else meters.request.record(0, now.mono)
        if told_ms:
            return max(told_ms, request_ms)
        return self._note(REQUEST, request_ms)

    def produced(self, now: Now, meters: ClientMeters, size: int) -> int:
        """Counts the bytes of a request with records that is answered now, with its throttle time."""
        produce_ms = 0 if meters.produce is None else meters.produce.record(size, now.mono)
        request_ms = 0 if meters.request is None else meters.request.record(0, now.mono)
        if produce_ms > request_ms:
            return self._note(PRODUCE, produce_ms)
        return self._note(REQUEST, request_ms)

    def fetched(self, now: Now, meters: ClientMeters, size: int) -> int:
        """Counts the bytes of an answer to a consumer. With a throttle time it has to be an empty one: then
        nothing is counted.
        """
        fetch_ms = 0 if meters.fetch is None else meters.fetch.record(size, now.mono)
        request_ms = 0 if meters.request is None else meters.request.record(0, now.mono)
        if not fetch_ms and not request_ms:
            return 0
        if meters.fetch is not None:
            meters.fetch.add(-size, now.mono)
        if fetch_ms > request_ms:
            return self._note(FETCH, fetch_ms)
        return self._note(REQUEST, request_ms)

    def answered(self, now: Now, meters: ClientMeters) -> int:
        """The throttle time of a request without records that is answered now."""
        request_ms = 0 if meters.request is None else meters.request.record(0, now.mono)
        return self._note(REQUEST, request_ms)

    def _note(self, kind: str, throttle_ms: int) -> int:
        if throttle_ms:
            throttled = self.throttled[kind]
            throttled.times += 1
            throttled.ms += throttle_ms
        return throttle_ms

    # --- changes of partitions ---------------------------------------------------------------------------

    def mutation(self, request: Request, strict_since: int) -> MutationQuota:
        """What the client of a request may change. Clients know the error code from this version on."""
        bucket = None
        connection = request.connection
        if self._tables is not None and connection.principal != NODE_ITSELF:
            user = connection.principal.partition(":")[2]
            bucket = self._tables.mutations.meter(user, request.client_id or "", request.now.mono)
        return MutationQuota(bucket, request.now, is_strict=request.version >= strict_since)

    def mutated(self, quota: MutationQuota, response: Any) -> None:
        """Puts the throttle time into the answer."""
        response.throttle_time_ms = self._note(MUTATION, quota.throttle_ms)

    # --- new connections ---------------------------------------------------------------------------------

    def refused_ms(self, now: Now, connection: Connection) -> int:
        """0, or for how long a new connection is held before it is closed: its address has made too many
        (`connection_creation_rate`). Who closed it at once would be asked again at once.
        """
        if self._tables is None or self.is_exempt(connection):
            return 0
        address = host_text(connection.address)
        return self._note(CONNECTION, self._tables.connections.admit(address, now.mono))

    def delayed_ms(self, now: Now, connection: Connection) -> int:
        """For how long nothing is read from a new connection: `max.connection.creation.rate`, of all clients
        and of its listener.
        """
        settings, listener = self._settings.current, connection.listener
        delay_ms = 0
        if settings.max_connection_creation_rate < UNLIMITED and listener not in settings.spared_listeners:
            delay_ms = self._delay_ms(now, "", settings.max_connection_creation_rate)
        bound = settings.listener_max_connection_creation_rates.get(listener)
        if bound is not None:
            delay_ms = max(delay_ms, self._delay_ms(now, listener, bound))
        return self._note(CONNECTION, delay_ms)

    def _delay_ms(self, now: Now, listener: str, bound: int) -> int:
        rate = self._creation_rates.get(listener)
        if rate is None:
            from headrace.machines.security.rates import Rate, Windows

            settings = self._settings.current
            windows = Windows(settings.quota_window_num, settings.quota_window_size_seconds)
            rate = self._creation_rates[listener] = Rate(bound, windows)
        if rate.bound != bound:
            rate.set_bound(bound)  # it is a dynamic setting
        return rate.record(1, now.mono)
