"""The controller's decisions, over one image and the settings of the node.

The modules for topics, settings and security are imported with the first such request: a broker starts
without them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.machines.configs.topic import broker_value, topic_defaults
from headrace.machines.configs.values import ConfigValue
from headrace.machines.metadata.controller import brokers
from headrace.machines.metadata.controller.decision import Admits, MetadataDecision, admit_all
from headrace.machines.metadata.controller.topic_rules import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION,
    TopicRules,
)
from headrace.machines.metadata.image import ClusterImage

if TYPE_CHECKING:
    from headrace.machines.metadata.controller.access_rules import CreatedRule, DeletedRules
    from headrace.machines.metadata.controller.allocations import ReplicaPlace
    from headrace.machines.metadata.controller.alter_configs import AlteredResource, ResourceChange
    from headrace.machines.metadata.controller.alter_partition import AlteredPartition, IsrChange
    from headrace.machines.metadata.controller.client_quotas import AlteredQuotas, QuotaChange
    from headrace.machines.metadata.controller.create_partitions import GrownTopic, MorePartitions
    from headrace.machines.metadata.controller.create_topics import CreatedTopic, NewTopic
    from headrace.machines.metadata.controller.delete_topics import DeletedTopic, DoomedTopic
    from headrace.machines.metadata.controller.elect_leaders import ElectedPartition, Election
    from headrace.machines.metadata.controller.heartbeats import Heartbeat, HeartbeatReply
    from headrace.machines.metadata.controller.sessions import BrokerSessions
    from headrace.machines.metadata.controller.tenants import TenantBudgets
    from headrace.machines.metadata.controller.update_features import FeatureUpdate
    from headrace.machines.metadata.controller.users import (
        AlteredUser,
        CredentialDeletion,
        CredentialUpsertion,
    )
    from headrace.machines.security.acl_rules import AclFilter, AclRule
    from headrace.protocol.notation import Data


TENANTS_KEY = "headrace.tenants"


class ControllerDecisions:
    """Reads the image and answers with decisions; it never changes anything itself."""

    def __init__(
        self,
        image: ClusterImage,
        rng: Randomness,
        static: Mapping[str, str],
        *,
        partitions: int,
        replication_factor: int,
        check_settings: Callable[[str, Mapping[str, str]], None] = lambda name, after: None,
    ) -> None:
        """`check_settings` raises InvalidConfig where a broker's settings, or all brokers', taken together
        would be some that no node could take.
        """
        self._image = image
        self._rng = rng
        self._static = static
        self._partitions = partitions
        self._replication_factor = replication_factor
        self._check_settings = check_settings
        self._defaults: dict[str, ConfigValue] = {}
        self._defaults_of: dict[str, str] | None = None  # the cluster-wide settings they were made from

    @property
    def image(self) -> ClusterImage:
        return self._image

    def lead(self, image: ClusterImage) -> None:
        """Decide from now on about this image: the node was elected."""
        self._image = image

    def topic_defaults(self) -> Mapping[str, ConfigValue]:
        """What a topic without overrides is set to."""
        cluster = self._image.cluster_config
        if self._defaults_of != cluster:
            self._defaults = topic_defaults((cluster, self._static))
            self._defaults_of = dict(cluster)
        return self._defaults

    def create_topics(
        self, topics: "Sequence[NewTopic]", *, validate_only: bool = False, admits: Admits = admit_all
    ) -> "MetadataDecision[list[CreatedTopic]]":
        from headrace.machines.metadata.controller.create_topics import TopicDefaults, create_topics

        defaults = TopicDefaults(self._partitions, self._replication_factor, self.topic_defaults())
        return create_topics(
            self._image,
            topics,
            defaults,
            self._rng,
            validate_only=validate_only,
            admits=admits,
            tenants=self._tenant_budgets(),
        )

    def _tenant_budgets(self) -> "TenantBudgets | None":
        """None: there are no tenants."""
        entries = broker_value(TENANTS_KEY, (self._image.cluster_config, self._static))
        if not entries:
            return None
        from headrace.machines.metadata.controller.tenants import TenantBudgets, parse_tenants

        assert isinstance(entries, list | tuple)
        return TenantBudgets(self._image, parse_tenants(entries))

    def delete_topics(
        self, topics: "Sequence[DoomedTopic]", admits: Admits = admit_all
    ) -> "MetadataDecision[list[DeletedTopic]]":
        from headrace.machines.metadata.controller.delete_topics import delete_topics

        return delete_topics(self._image, topics, admits)

    def create_partitions(
        self, topics: "Sequence[MorePartitions]", *, validate_only: bool = False, admits: Admits = admit_all
    ) -> "MetadataDecision[list[GrownTopic]]":
        from headrace.machines.metadata.controller.create_partitions import create_partitions

        return create_partitions(
            self._image,
            topics,
            self._rng,
            validate_only=validate_only,
            admits=admits,
            tenants=self._tenant_budgets(),
        )

    def alter_configs(
        self, resources: "Sequence[ResourceChange]", *, validate_only: bool = False
    ) -> "MetadataDecision[list[AlteredResource]]":
        from headrace.machines.metadata.controller.alter_configs import alter_configs

        layers = (self._image.cluster_config, self._static)
        return alter_configs(
            self._image,
            resources,
            self.topic_defaults(),
            layers,
            self._check_settings,
            validate_only=validate_only,
        )

    def elect_leaders(
        self, election: "Election", partitions: Sequence[tuple[str, int]]
    ) -> "MetadataDecision[list[ElectedPartition]]":
        from headrace.machines.metadata.controller.elect_leaders import elect_leaders

        return elect_leaders(self._image, election, partitions, self._topic_rules)

    def update_features(
        self,
        updates: "Sequence[FeatureUpdate]",
        supported: Mapping[str, tuple[int, int]],
        controller: int,
        *,
        validate_only: bool = False,
    ) -> MetadataDecision[None]:
        """Raises the Refusal of the first update that cannot be made; then none is."""
        from headrace.machines.metadata.controller.update_features import update_features

        return update_features(self._image, updates, supported, controller, validate_only=validate_only)

    def finalize_features(self, levels: Mapping[str, int]) -> MetadataDecision[None]:
        """Sets what is not set already: for a new cluster, or one that an older version made."""
        return brokers.finalize_features(self._image, levels, self._static.get(MIN_INSYNC_REPLICAS, "1"))

    # --- security ----------------------------------------------------------------------------------------

    def create_rules(self, rules: "Sequence[AclRule]") -> "MetadataDecision[list[CreatedRule]]":
        """Refusal: too many rules."""
        from headrace.machines.metadata.controller.access_rules import create_rules

        return create_rules(self._image, rules, self._rng)

    def delete_rules(self, filters: "Sequence[AclFilter]") -> "MetadataDecision[list[DeletedRules]]":
        """Refusal: the filters match too many rules."""
        from headrace.machines.metadata.controller.access_rules import delete_rules

        return delete_rules(self._image, filters)

    def alter_credentials(
        self, deletions: "Sequence[CredentialDeletion]", upsertions: "Sequence[CredentialUpsertion]"
    ) -> "MetadataDecision[list[AlteredUser]]":
        """Refusal: too many of them."""
        from headrace.machines.metadata.controller.users import alter_credentials

        return alter_credentials(self._image, deletions, upsertions, self._rng)

    def missing_secret(self, *, has_first_users: bool = False) -> "list[Data]":
        """What users that were not created by a request lack; with the first ones, which come with it."""
        if not self._image.security.credentials and not has_first_users:
            return []
        from headrace.machines.metadata.controller.users import missing_secret

        return missing_secret(self._image.security, self._rng)

    def alter_quotas(
        self, changes: "Sequence[QuotaChange]", *, validate_only: bool = False
    ) -> "MetadataDecision[list[AlteredQuotas]]":
        """Refusal: too many of them."""
        from headrace.machines.metadata.controller.client_quotas import alter_quotas

        return alter_quotas(self._image, changes, validate_only=validate_only)

    # --- brokers -----------------------------------------------------------------------------------------

    def _topic_rules(self, name: str) -> TopicRules:
        values = self._image.topic_config(name)
        min_insync, unclean = values.get(MIN_INSYNC_REPLICAS), values.get(UNCLEAN_LEADER_ELECTION)
        defaults = self.topic_defaults()
        return TopicRules(
            int(min_insync if min_insync is not None else str(defaults[MIN_INSYNC_REPLICAS])),
            allows_unclean=unclean.strip().lower() == "true"
            if unclean is not None
            else defaults[UNCLEAN_LEADER_ELECTION] is True,
            tracks_eligible=brokers.tracks_eligible(self._image),
        )

    def register_broker(
        self,
        registration: brokers.Registration,
        next_offset: int,
        *,
        is_local: bool = False,
        is_live: bool = False,
    ) -> MetadataDecision[int]:
        """Refusal: another broker has this id, or it does not fit this cluster."""
        return brokers.register_broker(
            self._image, registration, next_offset, self._topic_rules, is_local=is_local, is_live=is_live
        )

    def fence_brokers(self, ids: Collection[int]) -> MetadataDecision[list[int]]:
        return brokers.fence_brokers(self._image, ids, self._topic_rules)

    def unregister_broker(self, broker: int) -> MetadataDecision[None]:
        """Refusal: there is no such broker."""
        return brokers.unregister_broker(self._image, broker, self._topic_rules)

    def heartbeat(
        self, now: Now, beat: "Heartbeat", sessions: "BrokerSessions"
    ) -> "MetadataDecision[HeartbeatReply]":
        """Refusal: the broker has registered again since."""
        from headrace.machines.metadata.controller.heartbeats import heartbeat

        state = brokers.check_epoch(self._image, beat.broker, beat.broker_epoch)
        session = sessions.touch(now, state, beat.metadata_offset)
        return heartbeat(self._image, beat, session, sessions, self._topic_rules)

    def alter_partitions(
        self, broker: int, broker_epoch: int, changes: "Sequence[IsrChange]"
    ) -> "MetadataDecision[list[AlteredPartition]]":
        """Refusal: the broker has registered again since."""
        from headrace.machines.metadata.controller.alter_partition import alter_partitions

        return alter_partitions(self._image, broker, broker_epoch, changes, self._topic_rules)

    def allocate_producer_ids(self, broker: int, broker_epoch: int) -> MetadataDecision[range]:
        """A new block. Refusal: the broker has registered again since."""
        from headrace.machines.metadata.controller import allocations

        return allocations.allocate_producer_ids(self._image, broker, broker_epoch)

    def assign_directories(
        self, broker: int, broker_epoch: int, places: "Sequence[ReplicaPlace]"
    ) -> "MetadataDecision[list[ReplicaPlace]]":
        """Refusal: the broker has registered again since."""
        from headrace.machines.metadata.controller import allocations

        return allocations.assign_directories(self._image, broker, broker_epoch, places, self._topic_rules)
