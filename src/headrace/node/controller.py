"""The controller role: the decisions about the cluster, the watch over brokers, and their handlers.

Every voter has this role, and one of them is active: the leader of the metadata log. It decides on an image
of its own, which is ahead of the committed one by what is being replicated. The others answer NOT_CONTROLLER.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.numbers import INT32_MAX, whole_number
from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.machines.metadata.image import ALL_BROKERS, ClusterImage
from headrace.machines.metadata.versions import FINALIZED_AT_FORMAT, METADATA_VERSION
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.broker_watch import BrokerWatch
from headrace.node.controller_handlers import ControllerHandlers
from headrace.node.error_codes import FAULTS
from headrace.node.group_commit import RETRY_MS
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.ports import Once, Ports
from headrace.node.routes import Request, Routes
from headrace.node.settings import LiveSettings
from headrace.node.token_requests import delegation_tokens
from headrace.protocol.api import ApiKey, Listener
from headrace.protocol.notation import Data
from headrace.storage.errors import DiskFull

if TYPE_CHECKING:
    from headrace.machines.security.delegation_tokens import DelegationTokens
    from headrace.node.cluster_metrics import ControllerNumbers
    from headrace.node.handlers.create_topics import CreateTopics


class BrokerRequest(Protocol):
    """The handler of an API that only brokers use. A broker in this process calls it without a frame."""

    def decide(self, now: Now, body: Any, /) -> tuple[Any, int]:
        """The response, and the metadata offset whose commit makes it true."""
        ...


class Controller:
    def __init__(
        self,
        settings: LiveSettings,
        directories: LogDirectories,
        metadata: MetadataLog,
        access: Access,
        rng: Randomness,
        ports: Ports,
    ) -> None:
        """Nothing is decided before the node is elected."""
        current = settings.current
        self.id = current.node_id
        self.settings = settings
        self.directories = directories
        self.access = access
        self.ports = ports
        self.metadata = metadata
        self.decisions = ControllerDecisions(
            metadata.image,
            rng,
            current.texts,
            partitions=current.num_partitions,
            replication_factor=current.default_replication_factor,
            check_settings=self._check_settings,
        )
        own_broker = self.id if "broker" in current.process_roles else None
        self.watch = BrokerWatch(settings, metadata, self.decisions, ports, own_broker)
        self.rng = rng
        self._broker_requests: dict[int, BrokerRequest] = {}
        self._bootstrap = self._read_bootstrap()
        self._ready_at = 0
        self._registration: Registration | None = None  # of the broker in this process
        self._tell_broker: Callable[[Now], None] = lambda now: None

    def _read_bootstrap(self) -> Sequence[Data]:
        """Users and rules that the first active controller of a cluster makes known.

        Read at the start, so that a damaged file is an error (BadMetadata) then.
        """
        may_be_first = METADATA_VERSION not in self.metadata.image.features
        if not may_be_first or "controller" not in self.settings.current.process_roles:
            return ()
        from headrace.node.bootstrap import read_bootstrap

        return read_bootstrap(self.directories.disks[self.directories.metadata_log_dir])

    def follow(self, registration: Registration, poke: Callable[[Now], None]) -> None:
        """This process has a broker too: how it registers, and what it calls when the controller changes."""
        self._registration = registration
        self._tell_broker = poke

    def _check_settings(self, name: str, after: Mapping[str, str]) -> None:
        """InvalidConfig: this node could not take such dynamic settings of its own, or of all brokers."""
        image, settings = self.decisions.image, self.settings.current
        dynamic, cluster = image.broker_config(self.id), image.cluster_config
        if name == ALL_BROKERS:
            settings.overlaid(dynamic, after)
        elif whole_number(name, INT32_MAX) == self.id:
            from headrace.node.own_certificates import check_certificates

            check_certificates(self.settings, dynamic, after, cluster)

    @cached_property
    def tokens(self) -> "DelegationTokens":
        """Those that it decides about."""
        texts = self.settings.current.texts
        return delegation_tokens(texts, lambda: self.decisions.image.security.tokens)

    def remove_expired_tokens(self, now: Now) -> None:
        """Every `delegation.token.expiry.check.interval.ms`, if there can be any."""
        if not self.metadata.is_active or not self.decisions.image.security.tokens:
            return
        from headrace.machines.metadata.controller.delegation_tokens import remove_expired

        decision = remove_expired(self.tokens, now.wall_ms)
        if not decision.records:
            return
        try:
            self.metadata.propose(now, decision)
        except FAULTS as fault:
            self.ports.reports.report("error", "tokens_not_removed", error=str(fault))

    # --- while it is active --------------------------------------------------------------------------------

    def elected(self, now: Now, image: ClusterImage) -> None:
        """Decide about this image from now on."""
        self.decisions.lead(image)
        self._decide_first(now, image)
        self.watch.elected(now, image)

    def _decide_first(self, now: Now, image: ClusterImage) -> None:
        """What every cluster has, and the registration of the broker in this process, flushed together."""
        if self.decisions.image is not image or self.metadata.deciding_epoch < 0:
            return  # another node was elected meanwhile
        first: MetadataDecision[None] = self.decisions.finalize_features(FINALIZED_AT_FORMAT)
        is_new = METADATA_VERSION not in image.features
        if is_new:
            first.records += self._bootstrap
        first.records += self.decisions.missing_secret(has_first_users=is_new and bool(self._bootstrap))
        registration = self._registration
        if registration is not None:
            known = image.brokers.get(registration.broker)
            if known is None or known.incarnation_id != registration.incarnation_id:
                offset = self.metadata.end_offset + len(first.records)
                decision = self.decisions.register_broker(registration, offset, is_local=True)
                first = MetadataDecision(None, first.records + decision.records, decision.unclean_elections)
        try:
            self._ready_at = self.watch.propose(now, first)
            if is_new and self._bootstrap:
                self.ports.reports.report("info", "bootstrap_applied", records=len(self._bootstrap))
        except DiskFull as fault:
            self.ports.reports.report("error", "first_decisions_postponed", error=str(fault))
            Once(self.ports.deadlines, now.after_ms(RETRY_MS), lambda now: self._decide_first(now, image))

    def resigned(self, now: Now) -> None:
        self.watch.resigned(now)
        self._tell_broker(now)

    @property
    def is_ready(self) -> bool:
        """There is an active controller, here or elsewhere, and its first decisions are durable."""
        return self.metadata.is_caught_up and self.metadata.committed_offset >= self._ready_at

    def has_left(self, now: Now) -> bool:
        """Whether another voter may lead; asked again after every call."""
        return self.metadata.hand_over(now)

    def numbers(self) -> "ControllerNumbers":
        """Brokers and partitions of the cluster, for metrics."""
        from headrace.node.cluster_metrics import ControllerNumbers, cluster_numbers

        watch = self.watch
        return ControllerNumbers(
            cluster_numbers(self.metadata.image), watch.unclean_elections, watch.fencings
        )

    def disconnected(self, now: Now, broker: int) -> None:
        """A connection of that broker broke: its process may have ended."""
        self.watch.disconnected(now, broker)

    def decide(self, now: Now, body: Any) -> tuple[Any, int]:
        """Answer a request of the broker in this process; the metadata offset that makes the answer true."""
        return self._broker_request(body.KEY).decide(now, body)

    # --- its handlers --------------------------------------------------------------------------------------

    def serve(self, routes: Routes, listeners: Listener) -> None:
        """Registers the APIs that change or describe the metadata, on these listeners, and those that only
        brokers use, if this process may become the active controller.
        """
        ControllerHandlers(self, routes).register(listeners)

    def refusal_of_own(self, request: Request) -> Any:
        """Certificates for this broker that it cannot use; None: there are none."""
        api_key = request.route.api_key
        if api_key not in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            return None
        from headrace.node.own_certificates import refusal

        def is_allowed() -> bool:
            return self.access.allows(request, Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)

        image = self.metadata.image
        return refusal(api_key, request.body, self.id, image, self.settings, is_allowed)

    def _broker_request(self, api_key: int) -> BrokerRequest:
        made = self._broker_requests.get(api_key)
        if made is None:
            made = self._broker_requests[api_key] = self._make_broker_request(api_key)
        return made

    def _make_broker_request(self, api_key: int) -> BrokerRequest:
        match api_key:
            case ApiKey.BROKER_REGISTRATION:
                from headrace.node.handlers.broker_registration import BrokerRegistration

                return BrokerRegistration(
                    self.directories, self.metadata, self.decisions, self.watch, self.ports.reports
                )
            case ApiKey.BROKER_HEARTBEAT:
                from headrace.node.handlers.broker_heartbeat import BrokerHeartbeat

                return BrokerHeartbeat(self.metadata, self.decisions, self.watch)
            case ApiKey.ALTER_PARTITION:
                from headrace.node.handlers.alter_partition import AlterPartition

                return AlterPartition(self.metadata, self.decisions, self.watch)
            case ApiKey.ALLOCATE_PRODUCER_IDS:
                from headrace.node.handlers.allocate_producer_ids import AllocateProducerIds

                return AllocateProducerIds(self.metadata, self.decisions)
            case ApiKey.ASSIGN_REPLICAS_TO_DIRS:
                from headrace.node.handlers.assign_replicas_to_dirs import AssignReplicasToDirs

                return AssignReplicasToDirs(self.metadata, self.decisions, self.watch)
            case ApiKey.CREATE_TOPICS:
                return self.topics()
            case _:
                raise AssertionError(f"no broker asks API {api_key}")

    def topics(self) -> "CreateTopics":
        from headrace.node.handlers.create_topics import CreateTopics

        quotas = self.ports.waiting.quotas
        return CreateTopics(self.id, self.metadata, self.decisions, self.settings, self.access, quotas)
