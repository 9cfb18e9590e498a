"""The controller's decisions in one place, over one image and the settings a node was started with.

The deciders about topics and settings are loaded when the first such request comes: a broker starts without.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.base.dice import Dice
from headrace.machines.configs.topic import topic_defaults
from headrace.machines.configs.values import Value
from headrace.machines.metadata.controller import brokers
from headrace.machines.metadata.controller.decision import Decision
from headrace.machines.metadata.image import ClusterImage

if TYPE_CHECKING:
    from headrace.machines.metadata.controller.alter_configs import AlteredResource, ResourceChange
    from headrace.machines.metadata.controller.create_partitions import GrownTopic, MorePartitions
    from headrace.machines.metadata.controller.create_topics import CreatedTopic, NewTopic
    from headrace.machines.metadata.controller.delete_topics import DeletedTopic, DoomedTopic
    from headrace.machines.metadata.controller.elect_leaders import ElectedPartition, Election
    from headrace.machines.metadata.controller.update_features import FeatureUpdate


class ControllerDecisions:
    """Reads the image and answers with decisions; it never changes anything itself."""

    def __init__(
        self,
        image: ClusterImage,
        dice: Dice,
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
        self._dice = dice
        self._static = static
        self._partitions = partitions
        self._replication_factor = replication_factor
        self._check_settings = check_settings
        self._defaults: dict[str, Value] = {}
        self._defaults_of: dict[str, str] | None = None  # the cluster-wide settings they were made from

    def topic_defaults(self) -> Mapping[str, Value]:
        """What a topic without overrides is set to."""
        cluster = self._image.cluster_config
        if self._defaults_of != cluster:
            self._defaults = topic_defaults((cluster, self._static))
            self._defaults_of = dict(cluster)
        return self._defaults

    def create_topics(
        self, topics: "Sequence[NewTopic]", *, validate_only: bool = False
    ) -> "Decision[list[CreatedTopic]]":
        from headrace.machines.metadata.controller.create_topics import TopicDefaults, create_topics

        defaults = TopicDefaults(self._partitions, self._replication_factor, self.topic_defaults())
        return create_topics(self._image, topics, defaults, self._dice, validate_only=validate_only)

    def delete_topics(self, topics: "Sequence[DoomedTopic]") -> "Decision[list[DeletedTopic]]":
        from headrace.machines.metadata.controller.delete_topics import delete_topics

        return delete_topics(self._image, topics)

    def create_partitions(
        self, topics: "Sequence[MorePartitions]", *, validate_only: bool = False
    ) -> "Decision[list[GrownTopic]]":
        from headrace.machines.metadata.controller.create_partitions import create_partitions

        return create_partitions(self._image, topics, self._dice, validate_only=validate_only)

    def alter_configs(
        self, resources: "Sequence[ResourceChange]", *, validate_only: bool = False
    ) -> "Decision[list[AlteredResource]]":
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
    ) -> "Decision[list[ElectedPartition]]":
        from headrace.machines.metadata.controller.elect_leaders import elect_leaders

        return elect_leaders(self._image, election, partitions)

    def update_features(
        self,
        updates: "Sequence[FeatureUpdate]",
        supported: Mapping[str, tuple[int, int]],
        controller: int,
        *,
        validate_only: bool = False,
    ) -> Decision[None]:
        """Raises the Refusal of the first update that cannot be made; then none is."""
        from headrace.machines.metadata.controller.update_features import update_features

        return update_features(self._image, updates, supported, controller, validate_only=validate_only)

    def register_broker(self, registration: brokers.Registration, next_offset: int) -> Decision[int]:
        return brokers.register_broker(self._image, registration, next_offset)

    def allocate_producer_ids(self, broker: int) -> Decision[tuple[int, int]]:
        """The first id of a new block and the first after it."""
        state = self._image.brokers.get(broker)
        block = brokers.allocate_producer_ids(self._image, broker, state.epoch if state else -1)
        return Decision((block.reply.start, block.reply.stop), block.records)

    def assign_directory(self, topic_id: bytes, index: int, broker: int, directory: bytes) -> Decision[None]:
        return brokers.assign_directory(self._image, topic_id, index, broker, directory)

    def finalize_features(self, levels: Mapping[str, int]) -> Decision[None]:
        return brokers.finalize_features(self._image, levels)
