"""What a node was told when it was started: Kafka's key names as texts in, typed values out.

A field's name is its key with underscores for dots. Keys that nobody knows are kept for a warning; a wrong
value of a known key is refused with `InvalidConfig`, and so is one that promises what the node does not do
(`machines/configs/unserved.py`). Dynamic settings are laid over the file's with `overlaid`.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from headrace.base.numbers import INT32_MAX, whole_number
from headrace.machines.configs.definition import broker_config_keys
from headrace.machines.configs.topic import broker_value
from headrace.machines.configs.unserved import (
    check_bootstrap_servers,
    check_promises,
    check_roles,
    check_voters,
)
from headrace.machines.configs.values import InvalidConfig, closest

ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]/:]*)):([0-9]{1,5})")
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}  # Kafka's numbers

# What `queued.max.request.bytes=-1` comes to: several full frames, and far from filling a small machine.
QUEUED_REQUEST_BYTES_DEFAULT = 512 * 1024 * 1024

# The first words of key families that plug-ins and listeners bring along: they are not misspellings.
OPEN_FAMILIES = ("listener.name.", "rsm.config.", "rlmm.config.", "config.providers.")


class Listener(NamedTuple):
    name: str
    host: str  # "" is every address of the machine
    port: int
    security_protocol: str

    @property
    def security_protocol_id(self) -> int:
        return SECURITY_PROTOCOLS[self.security_protocol]


class Settings:
    """Never changed once made: `overlaid` and `bound` make new ones. No dataclass: one of so many fields
    takes as long to define as ten small modules to load, at every start.
    """

    texts: dict[str, str]  # as given: what DescribeConfigs tells as static
    unknown: dict[str, str | None]  # keys nobody knows, each with the key that was perhaps meant

    node_id: int
    process_roles: tuple[str, ...]
    cluster_id: str | None  # headrace.cluster.id; None: the directory's own, or a new one
    broker_rack: str | None

    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]  # what clients are told; never a controller's
    advertised_controllers: tuple[Listener, ...]  # where the quorum's voter is reached
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str

    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int

    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    min_insync_replicas: int
    message_max_bytes: int

    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int

    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: dict[str, int]
    connections_max_idle_ms: int
    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    queued_max_request_bytes: int

    log_retention_check_interval_ms: int
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int

    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int

    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: list[str]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_assignment_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: list[str]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int

    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_two_phase_commit_enable: bool
    transactional_id_expiration_ms: int

    headrace_open_files_max: int
    headrace_metrics_host: str
    headrace_stray_retention_ms: int
    headrace_metrics_port: int

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name}: settings do not change, new ones are made")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def parse(cls, texts: Mapping[str, str], *, own_names: frozenset[str] = frozenset()) -> "Settings":
        """`own_names` are other names of this machine, by which a file may name it as the quorum's voter."""
        settings = _parse(dict(texts), ({},))
        _check_served(settings, own_names)
        return settings

    def overlaid(self, dynamic: Mapping[str, str], cluster: Mapping[str, str]) -> "Settings":
        """The same node after its dynamic settings changed: this broker's own, then the cluster-wide ones."""
        fresh = _parse(self.texts, (dynamic, cluster))
        return fresh.but(
            listeners=self.listeners,
            advertised_listeners=self.advertised_listeners,
            advertised_controllers=self.advertised_controllers,
        )

    def bound(self, ports: Mapping[str, int], hostname: str) -> "Settings":
        """With the ports that listeners on port 0 came to, and a name for addresses that have none."""

        def told(listener: Listener) -> Listener:
            return listener._replace(
                host=listener.host or hostname, port=listener.port or ports.get(listener.name, 0)
            )

        listeners = tuple(
            listener._replace(port=listener.port or ports.get(listener.name, 0))
            for listener in self.listeners
        )
        return self.but(
            listeners=listeners,
            advertised_listeners=tuple(map(told, self.advertised_listeners)),
            advertised_controllers=tuple(map(told, self.advertised_controllers)),
        )

    def but(self, **changed: Any) -> "Settings":
        """The same, but for some fields."""
        return Settings(vars(self) | changed)

    def advertised(self, listener: str) -> Listener:
        """What a client of that listener is told; the first one where there is none of that name."""
        for candidate in self.advertised_listeners:
            if candidate.name == listener:
                return candidate
        return self.advertised_listeners[0]

    @property
    def served_listeners(self) -> tuple[Listener, ...]:
        """Those that the process binds. A broker that is its own controller needs no connection to it."""
        return self.client_listeners if "broker" in self.process_roles else self.listeners

    @property
    def told_listeners(self) -> tuple[Listener, ...]:
        """Where the process is reached, as it says in its first line."""
        return self.advertised_listeners if "broker" in self.process_roles else self.advertised_controllers

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        return tuple(one for one in self.listeners if one.name not in self.controller_listener_names)


class LiveSettings:
    """The settings in force: those of the file, with the dynamic ones over them. They may change while the
    node runs, so that whoever needs one reads it here when it needs it.
    """

    __slots__ = ("current",)

    def __init__(self, settings: Settings) -> None:
        self.current = settings


def _parse(texts: dict[str, str], above: tuple[Mapping[str, str], ...]) -> Settings:
    known = broker_config_keys()
    layers = (*above, texts)
    values: dict[str, Any] = {
        field: broker_value(key, layers)
        for field in Settings.__annotations__
        if (key := field.replace("_", ".")) in known
    }
    for key in texts.keys() & known.keys():
        broker_value(key, (texts,))  # wrong values of keys that nothing reads are refused too
    if values["node_id"] is None:
        values["node_id"] = broker_value("broker.id", layers)
        if "broker.id" not in texts:
            raise InvalidConfig("Missing required configuration node.id: this node's number in the cluster")
    # each name of the same number is told with it, as Kafka does
    texts = texts | dict.fromkeys(("node.id", "broker.id"), str(values["node_id"]))
    values["process_roles"] = tuple(values["process_roles"] or ("broker", "controller"))
    protocols = _protocols(broker_value("listener.security.protocol.map", layers))
    controllers = tuple(values["controller_listener_names"] or ())
    listeners = _listeners("listeners", values["listeners"], protocols, controllers)
    advertised = listeners
    if values["advertised_listeners"]:
        advertised = _listeners(
            "advertised.listeners", values["advertised_listeners"], protocols, controllers
        )
    for listener in advertised:
        if listener.name not in {one.name for one in listeners}:
            raise InvalidConfig(f"advertised.listeners: {listener.name} is not one of the listeners")
    values["listeners"] = listeners
    values["controller_listener_names"] = controllers
    values["advertised_listeners"] = tuple(one for one in advertised if one.name not in controllers)
    values["advertised_controllers"] = tuple(
        next((one for one in advertised if one.name == listener.name), listener)
        for listener in listeners
        if listener.name in controllers
    )
    if not values["advertised_listeners"] and "broker" in values["process_roles"]:
        key = "listeners" if advertised is listeners else "advertised.listeners"
        raise InvalidConfig(f"{key} must name at least one listener that is not a controller listener")
    if "broker" not in values["process_roles"]:
        _check_controller_listeners(listeners, controllers)
    first = values["advertised_listeners"][0].name if values["advertised_listeners"] else ""
    values["inter_broker_listener_name"] = values["inter_broker_listener_name"] or first
    values["log_dirs"] = tuple(_log_directories(texts, layers))
    values["metadata_log_dir"] = values["metadata_log_dir"] or values["log_dirs"][0]
    smaller = broker_value("internal.metadata.log.segment.bytes", layers)
    values["metadata_log_segment_bytes"] = smaller or values["metadata_log_segment_bytes"]
    values["max_connections_per_ip_overrides"] = _overrides(values["max_connections_per_ip_overrides"])
    if values["queued_max_request_bytes"] <= 0:
        values["queued_max_request_bytes"] = QUEUED_REQUEST_BYTES_DEFAULT
    values["cluster_id"] = broker_value("headrace.cluster.id", layers)
    unknown = {
        key: closest(key, known)
        for key in sorted(texts.keys() - known.keys())
        if not key.startswith(OPEN_FAMILIES)
    }
    return Settings({"texts": texts, "unknown": unknown, **values})


def _check_controller_listeners(listeners: tuple[Listener, ...], controllers: tuple[str, ...]) -> None:
    """A process that is only a controller serves no clients."""
    if not controllers:
        raise InvalidConfig(
            "process.roles=controller needs controller.listener.names: the name of a listener in `listeners`"
        )
    others = [one.name for one in listeners if one.name not in controllers]
    if others:
        raise InvalidConfig(
            f"listeners: {', '.join(others)} is not in controller.listener.names. A process with "
            "process.roles=controller serves no clients: remove this listener, or add the broker role."
        )


def _log_directories(texts: Mapping[str, str], layers: tuple[Mapping[str, str], ...]) -> list[str]:
    """Those of log.dirs, else of log.dir. A key without a directory is refused: a default would surprise."""
    key = "log.dirs" if "log.dirs" in texts else "log.dir"
    directories = _strings(broker_value(key, layers))
    if not directories:
        raise InvalidConfig(f"{key} must name at least one directory")
    return directories


def _check_served(settings: Settings, own_names: frozenset[str]) -> None:
    """Raises InvalidConfig at what the file relies on and a node does not do yet."""
    check_promises(settings.texts)
    check_roles(settings.process_roles)
    for listener in settings.listeners:
        if listener.security_protocol != "PLAINTEXT":
            raise InvalidConfig(
                f"listeners: listener {listener.name} on port {listener.port}: {listener.security_protocol} "
                "is not served yet. Remove this listener, or use PLAINTEXT on a network that you trust."
            )
    layers = (settings.texts,)
    check_voters(settings.node_id, _strings(broker_value("controller.quorum.voters", layers)))
    own = [one for one in settings.listeners if one.name in settings.controller_listener_names]
    check_bootstrap_servers(
        _strings(broker_value("controller.quorum.bootstrap.servers", layers)),
        [(one.host, one.port) for one in (*own, *settings.advertised_controllers)],
        own_names | {one.host.lower() for one in settings.advertised_listeners},
    )


def _strings(value: Any) -> list[str]:
    assert isinstance(value, list)
    return value


def _protocols(text: Any) -> dict[str, str]:
    protocols = {}
    for pair in str(text).split(","):
        name, colon, protocol = pair.strip().rpartition(":")
        if not colon or protocol not in SECURITY_PROTOCOLS:
            choices = ", ".join(SECURITY_PROTOCOLS)
            raise InvalidConfig(
                f"Invalid value {pair} for configuration listener.security.protocol.map: "
                f"expected NAME:PROTOCOL with a protocol of {choices}"
            )
        protocols[name] = protocol
    return protocols


def _listeners(
    key: str, texts: list[str], protocols: Mapping[str, str], controllers: tuple[str, ...]
) -> tuple[Listener, ...]:
    listeners: list[Listener] = []
    for text in texts:
        match = ENDPOINT.fullmatch(text)
        if match is None or int(match[4]) > 65_535:
            raise InvalidConfig(f"Invalid value {text} for configuration {key}: expected NAME://host:port")
        name = match[1]
        protocol = protocols.get(name)
        if protocol is None and name in controllers and len(protocols) == len(SECURITY_PROTOCOLS):
            protocol = "PLAINTEXT"  # as in Kafka: a controller listener needs no entry in the default map
        if protocol is None:
            raise InvalidConfig(f"{key}: listener {name} is not in listener.security.protocol.map")
        if any(listener.name == name for listener in listeners):
            raise InvalidConfig(f"{key}: each listener must have a different name, {name} is there twice")
        listeners.append(Listener(name, match[2] or match[3] or "", int(match[4]), protocol))
    return tuple(listeners)


def _overrides(text: str) -> dict[str, int]:
    overrides = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = pair.rpartition(":")
        connections = whole_number(count, INT32_MAX)
        if not address or connections is None:
            raise InvalidConfig(
                f"Invalid value {pair} for configuration max.connections.per.ip.overrides: "
                "expected address:count"
            )
        overrides[address] = connections
    return overrides
