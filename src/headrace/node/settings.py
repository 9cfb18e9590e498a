"""Settings of a node: typed values from texts with Kafka's key names.

A field's name is its key with underscores for dots. Unknown keys are kept for a warning. A wrong value of a
known key raises `InvalidConfig`, and so does a value that asks for something that the node cannot do
(`machines/configs/unserved.py`). `overlaid` puts dynamic settings over those of the file.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from headrace.machines.configs.definition import broker_config_keys
from headrace.machines.configs.reloaded_keys import reloaded_key
from headrace.machines.configs.topic import broker_value
from headrace.machines.configs.unserved import (
    check_bootstrap_servers,
    check_promises,
)
from headrace.machines.configs.values import InvalidConfig
from headrace.node.authorizer_settings import (
    READ_BY_AUTHORIZER,
    AuthorizerSettings,
    authorizer_settings,
    check_nodes_are_let_in,
)
from headrace.node.http_settings import (
    HOSTS,
    LISTENERS,
    LOGIN_REQUIRED,
    METRICS_ANONYMOUS,
    OLD_HOST,
    OLD_PORT,
    HttpSettings,
    check_http,
    http_settings,
)
from headrace.node.listener_settings import (
    Listener,
    address_overrides,
    listener_limits,
    listener_protocols,
    parse_listeners,
)
from headrace.node.node_listeners import node_listeners
from headrace.node.quorum_voters import QuorumVoter, quorum_voters

# What `queued.max.request.bytes=-1` comes to: several full frames, and far from filling a small host.
QUEUED_REQUEST_BYTES_DEFAULT = 512 * 1024 * 1024


class Settings:
    """The values of all settings. They never change: `overlaid` and `bound` return new ones. This is not a
    dataclass, because one with so many fields takes as long to define as ten small modules to load.
    """

    texts: dict[str, str]  # as given: what DescribeConfigs tells as static
    literals: dict[str, str]  # texts with variables of config providers, as the file has them
    tls_texts: dict[str, str]  # the same with this broker's dynamic settings of certificates
    unknown: dict[str, str | None]  # keys nobody knows, each with the key that was perhaps meant

    node_id: int
    process_roles: tuple[str, ...]
    cluster_id: str | None  # headrace.cluster.id; None: the directory's own, or a new one
    broker_rack: str | None

    authorizer: AuthorizerSettings | None  # None: everybody may do everything
    http: HttpSettings

    listeners: tuple[Listener, ...]
    client_listeners: tuple[Listener, ...]  # of these, those that are not for controllers
    advertised_listeners: tuple[Listener, ...]  # what clients are told; never a controller's
    advertised_controllers: tuple[Listener, ...]  # where the quorum's voter is reached
    controller_listener_names: tuple[str, ...]
    quorum_voters: tuple[QuorumVoter, ...]  # () if this node is the only one
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    inter_broker_listener_name: str
    inter_broker_protocol: str
    controller_protocol: str  # of the first of controller_listener_names, by which others are reached

    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int

    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    controlled_shutdown_enable: bool
    initial_broker_registration_timeout_ms: int

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
    max_connection_creation_rate: int
    listener_max_connections: dict[str, int]  # by listener: only of those that have a limit of their own
    listener_max_connection_creation_rates: dict[str, int]
    connections_max_idle_ms: int
    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    queued_max_request_bytes: int

    quota_window_num: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int

    log_retention_check_interval_ms: int
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_socket_timeout_ms: int
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

    headrace_audit_log: str
    headrace_audit_log_files: int
    headrace_audit_log_level: str
    headrace_audit_log_max_bytes: int
    headrace_audit_log_path: str | None
    headrace_open_files_max: int
    headrace_network_core: bool
    headrace_stray_retention_ms: int

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)
        controllers = self.controller_listener_names
        self.__dict__["client_listeners"] = tuple(
            [listener for listener in self.listeners if listener.name not in controllers]
        )

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name} cannot be set: use but() or overlaid(), which return new settings")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def parse(
        cls,
        texts: Mapping[str, str],
        *,
        own_names: frozenset[str] = frozenset(),
        literals: Mapping[str, str] | None = None,
    ) -> "Settings":
        """`own_names` are other names of this host, by which a file may name it as the quorum's voter.
        `literals` are the texts of the file in place of which `texts` has the values of variables.
        """
        settings = _parse(dict(texts), ({},)).but(literals=dict(literals or {}))
        _check_served(settings, own_names)
        return settings

    def overlaid(self, dynamic: Mapping[str, str], cluster: Mapping[str, str]) -> "Settings":
        """The same node after its dynamic settings changed: this broker's own, then the cluster-wide ones."""
        fresh = _parse(self.texts, (dynamic, cluster))
        return fresh.but(
            literals=self.literals,
            listeners=self.listeners,
            advertised_listeners=self.advertised_listeners,
            advertised_controllers=self.advertised_controllers,
            metadata_log_dir=self.metadata_log_dir,  # where it was found
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
        """The advertised address of a listener; the first one if there is none with that name."""
        for candidate in self.advertised_listeners:
            if candidate.name == listener:
                return candidate
        return self.advertised_listeners[0]

    @property
    def served_listeners(self) -> tuple[Listener, ...]:
        """Those that the process binds. A broker that is its own controller needs no connection to it."""
        is_alone = not self.quorum_voters and "broker" in self.process_roles
        return self.client_listeners if is_alone else self.listeners

    @property
    def told_texts(self) -> Mapping[str, str]:
        """For clients: texts that came from a file or a variable of this host are told as they were written.
        Numbers and flags are told with their values, because tools compute with them.
        """
        if not self.literals:
            return self.texts
        known = broker_config_keys()
        return self.texts | {
            name: text for name, text in self.literals.items() if name not in known or known[name].is_text
        }

    @property
    def has_logins(self) -> bool:
        """Whether a listener asks clients who they are."""
        return any(map(self._asks_who, self.served_listeners))

    @property
    def has_audit_log(self) -> bool:
        """By default where clients are somebody, or may not do everything."""
        if self.headrace_audit_log == "auto":
            return self.authorizer is not None or self.has_logins
        return self.headrace_audit_log == "on"

    @property
    def told_listeners(self) -> tuple[Listener, ...]:
        """Where the process is reached, as it says in its first line."""
        return self.advertised_listeners if "broker" in self.process_roles else self.advertised_controllers

    @property
    def open_controllers(self) -> tuple[str, ...]:
        """Controllers' listeners on which other nodes come without a login."""
        is_alone = not self.quorum_voters and "broker" in self.process_roles
        if is_alone or "controller" not in self.process_roles:
            return ()
        return tuple(
            one.name
            for one in self.listeners
            if one.name in self.controller_listener_names and not self._asks_who(one)
        )

    def _asks_who(self, listener: Listener) -> bool:
        """Whether clients have to show who they are there, by a login or a certificate."""
        if listener.uses_sasl or not listener.uses_tls:
            return listener.uses_sasl
        from headrace.node.listener_texts import ListenerTexts

        return bool(ListenerTexts(self.texts, listener.name).value("ssl.client.auth") != "none")

    @property
    def spared_listeners(self) -> frozenset[str]:
        """Those of other nodes: clients cannot use up their connections. Kafka's rule for the inter-broker
        listener: if clients have another one.
        """
        controllers = frozenset(self.controller_listener_names)
        if len(self.client_listeners) < 2:
            return controllers
        return controllers | {self.inter_broker_listener_name}


class LiveSettings:
    """The current settings: those of the file, with the dynamic ones over them. They may change while the
    node runs, so a part reads a value here whenever it needs it.
    """

    __slots__ = ("check_files", "current")

    def __init__(self, settings: Settings) -> None:
        self.current = settings
        # InvalidConfig: this process could not use the certificates that such settings name. Files are the
        # server's, which puts its own function here.
        self.check_files: Callable[[Settings], None] = lambda wanted: None


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
            raise InvalidConfig(
                "Missing required configuration node.id: set it to this node's number in the cluster"
            )
    # each name of the same number is told with it, as Kafka does
    texts = texts | dict.fromkeys(("node.id", "broker.id"), str(values["node_id"]))
    values["process_roles"] = tuple(values["process_roles"] or ("broker", "controller"))
    protocols = listener_protocols(broker_value("listener.security.protocol.map", layers))
    controllers = tuple(values["controller_listener_names"] or ())
    listeners = parse_listeners("listeners", values["listeners"], protocols, controllers)
    advertised = listeners
    if values["advertised_listeners"]:
        advertised = parse_listeners(
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
    values["quorum_voters"] = quorum_voters(
        values, _strings(broker_value("controller.quorum.voters", layers))
    )
    values |= node_listeners(texts, values, protocols)
    values["log_dirs"] = tuple(_log_directories(texts, layers))
    values["metadata_log_dir"] = values["metadata_log_dir"] or values["log_dirs"][0]
    smaller = broker_value("internal.metadata.log.segment.bytes", layers)
    values["metadata_log_segment_bytes"] = smaller or values["metadata_log_segment_bytes"]
    values["max_connections_per_ip_overrides"] = address_overrides(values["max_connections_per_ip_overrides"])
    if values["queued_max_request_bytes"] <= 0:
        values["queued_max_request_bytes"] = QUEUED_REQUEST_BYTES_DEFAULT
    values["listener_max_connections"] = listener_limits("max.connections", layers, listeners)
    values["listener_max_connection_creation_rates"] = listener_limits(
        "max.connection.creation.rate", layers, listeners
    )
    values["cluster_id"] = broker_value("headrace.cluster.id", layers)
    values["authorizer"] = authorizer_settings(texts)
    if tenants := _strings(broker_value("headrace.tenants", layers)):
        from headrace.machines.metadata.controller.tenants import parse_tenants

        parse_tenants(tenants)
    http_keys = (LISTENERS, HOSTS, LOGIN_REQUIRED, METRICS_ANONYMOUS, OLD_HOST, OLD_PORT)
    http = {key: broker_value(key, layers) for key in http_keys}
    values["http"] = http_settings(http, has_authorizer=values["authorizer"] is not None)
    unknown: dict[str, str | None] = {}
    if strangers := texts.keys() - known.keys() - READ_BY_AUTHORIZER:
        from headrace.node.unknown_settings import unknown_settings

        names = {one.name for one in listeners} | {*controllers, *protocols, "HTTP", "HTTPS"}
        unknown = unknown_settings(strangers, known, names)
    changed = {key: text for key, text in (above[0] if above else {}).items() if reloaded_key(key)}
    tls_texts = texts | changed if changed else texts
    as_given = {"texts": texts, "tls_texts": tls_texts, "literals": {}, "unknown": unknown}
    return Settings(as_given | values)


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
    _check_security(settings)
    check_http(settings.http, settings.texts)
    check_nodes_are_let_in(settings.authorizer, settings.open_controllers)
    if settings.quorum_voters:
        return  # they say more than the addresses of some of them
    layers = (settings.texts,)
    own = [one for one in settings.listeners if one.name in settings.controller_listener_names]
    check_bootstrap_servers(
        _strings(broker_value("controller.quorum.bootstrap.servers", layers)),
        [(one.host, one.port) for one in (*own, *settings.advertised_controllers)],
        own_names | {one.host.lower() for one in settings.advertised_listeners},
    )


def _check_security(settings: Settings) -> None:
    """Listeners with TLS or SASL have what they need, and so have connections to other nodes."""
    secure = [one for one in settings.listeners if one.security_protocol != "PLAINTEXT"]
    protocols = (settings.inter_broker_protocol, settings.controller_protocol)
    if not secure and all(protocol == "PLAINTEXT" for protocol in protocols):
        return
    from headrace.node.listener_security import sasl_settings, tls_settings
    from headrace.node.node_security import check_between_nodes

    for listener in secure:
        if listener.uses_tls:
            tls_settings(settings.texts, listener.name)
        if listener.uses_sasl:
            sasl_settings(
                settings.texts,
                listener.name,
                is_encrypted=listener.uses_tls,
                is_loopback=listener.is_loopback,
            )
    if settings.quorum_voters:
        check_between_nodes(settings)


def _strings(value: Any) -> list[str]:
    assert isinstance(value, list)
    return value
