"""Decisions about brokers: registration, fencing, unfencing, shutdown, and the end of a registration.

A registration has an epoch, the offset of its record. A broker begins fenced: it leads nothing and is in no
ISR until a heartbeat says that it has replayed its own registration. Whoever is fenced, shuts down or leaves
is taken out of every ISR, and its leaders move, in the same decision.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.base.ids import BrokerId
from headrace.base.values import Value
from headrace.machines.metadata.controller.decision import MetadataDecision, Refusal
from headrace.machines.metadata.controller.topic_rules import MIN_INSYNC_REPLICAS, TopicRules
from headrace.machines.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    BrokerState,
    ClusterImage,
    Endpoint,
)
from headrace.machines.metadata.versions import ELIGIBLE_LEADER_REPLICAS_VERSION
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from headrace.protocol.notation import Data

if TYPE_CHECKING:
    from headrace.machines.metadata.controller.partition_changes import PartitionChanges

FENCE = 1
UNFENCE = -1
ENTER_SHUTDOWN = 1

# Ids below are not directories: all zero is unassigned, 1 is lost.
RESERVED_BELOW = (100).to_bytes(16, "big")
LOST_DIRECTORY = (1).to_bytes(16, "big")

RulesOf = Callable[[str], TopicRules]


def has_directory(broker: BrokerState, directory: bytes) -> bool:
    """Whether the broker can read what lies in this log directory, as far as anybody was told."""
    if not broker.directories or directory in broker.directories:
        return True
    return directory < RESERVED_BELOW and directory != LOST_DIRECTORY


class Registration(Value):
    broker: int
    incarnation_id: bytes  # new at every start of the process
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    directories: Sequence[bytes]
    # of the run before, if that stopped cleanly or its machine is still up; -1: records may be lost
    previous_epoch: int = -1


def register_broker(
    image: ClusterImage,
    registration: Registration,
    next_offset: int,
    rules_of: RulesOf,
    *,
    is_local: bool = False,
    is_live: bool = False,
) -> MetadataDecision[int]:
    """Registers a broker that has just started; the reply is its epoch. `next_offset` is the log's end.

    `is_local`: the broker of the controller's own process. Nobody else can be that broker, and it has the
    whole log, so it is not fenced. `is_live`: the registered run of this broker has a session.
    """
    existing = image.brokers.get(registration.broker)
    is_new_run = existing is None or existing.incarnation_id != registration.incarnation_id
    if existing is not None and is_new_run and is_live and existing.is_active and not is_local:
        raise Refusal(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with id {registration.broker}. If this broker was restarted, its "
            "registration succeeds when the session of the earlier run ends.",
        )
    if not registration.endpoints:  # nobody could reach it, or find out whether it still runs
        raise invalid_registration("No listeners in request")
    check_directories(image, registration)
    if not is_local:
        check_features(image, registration)
    epoch = next_offset if existing is None or is_new_run else existing.epoch
    state = BrokerState(
        id=BrokerId(registration.broker),
        epoch=epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=dict(registration.endpoints),
        features=dict(registration.features),
        rack=registration.rack,
        is_fenced=not is_local if existing is None or is_new_run else existing.is_fenced,
        in_controlled_shutdown=existing is not None and not is_new_run and existing.in_controlled_shutdown,
        directories=tuple(sorted(registration.directories)),
    )
    if state == existing:
        return MetadataDecision(epoch)
    records: list[Data] = [registration_record(state)]
    if not is_new_run or not image.topics:
        return MetadataDecision(epoch, records)
    changes = partition_changes(image, rules_of)
    is_clean = existing is not None and registration.previous_epoch == existing.epoch
    if is_local:
        changes.restart(state, is_clean=is_clean)
    elif is_clean or not tracks_eligible(image):
        changes.leave((state.id,))
    else:
        changes.lose(state.id)
    return MetadataDecision(epoch, records + changes.records(), changes.unclean_elections)


def partition_changes(image: ClusterImage, rules_of: RulesOf) -> "PartitionChanges":
    # imported when there are partitions: a new node starts without it
    from headrace.machines.metadata.controller.partition_changes import PartitionChanges

    return PartitionChanges(image, rules_of)


def tracks_eligible(image: ClusterImage) -> bool:
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1


def check_directories(image: ClusterImage, registration: Registration) -> None:
    directories = registration.directories
    if any(directory < RESERVED_BELOW for directory in directories):
        raise invalid_registration("Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        raise invalid_registration("Duplicate directory ID in request")
    for broker in image.brokers.values():
        if broker.id != registration.broker and not set(directories).isdisjoint(broker.directories):
            raise invalid_registration(
                f"Broker {broker.id} is already registered with one of the directories"
            )


def invalid_registration(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REGISTRATION, message)


def check_features(image: ClusterImage, registration: Registration) -> None:
    """A broker that does not know a finalized level could misread the metadata."""
    for name, level in sorted(image.features.items()):
        lowest, highest = registration.features.get(name, (0, 0))
        if not lowest <= level <= highest:
            raise Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support version {level} of {name}. "
                f"It wants a version between {lowest} and {highest}, inclusive.",
            )


def registration_record(state: BrokerState) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=state.id,
        incarnation_id=state.incarnation_id,
        broker_epoch=state.epoch,
        end_points=[
            BrokerEndpoint(name=name, host=end.host, port=end.port, security_protocol=end.security_protocol)
            for name, end in state.endpoints.items()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
            for name, (least, most) in sorted(state.features.items())
        ],
        rack=state.rack,
        fenced=state.is_fenced,
        in_controlled_shutdown=state.in_controlled_shutdown,
        log_dirs=list(state.directories),
    )


# --- fencing and its end --------------------------------------------------------------------------------


def fence_brokers(
    image: ClusterImage, brokers: Collection[int], rules_of: RulesOf
) -> MetadataDecision[list[int]]:
    """Fences those of these brokers that are not; the reply is which. All partitions change together."""
    fenced = [id for id in sorted(set(brokers)) if id in image.brokers and not image.brokers[id].is_fenced]
    if not fenced:
        return MetadataDecision([])
    changes = partition_changes(image, rules_of)
    changes.leave(fenced)
    records: list[Data] = [
        BrokerRegistrationChangeRecord(broker_id=id, broker_epoch=image.brokers[id].epoch, fenced=FENCE)
        for id in fenced
    ]
    return MetadataDecision(fenced, changes.records() + records, changes.unclean_elections)


def unfence_broker(image: ClusterImage, broker: int, rules_of: RulesOf) -> MetadataDecision[None]:
    """The broker may lead. It leads at once what nobody leads and it has."""
    state = image.brokers[broker]
    changes = partition_changes(image, rules_of)
    changes.join(state)
    record = BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=state.epoch, fenced=UNFENCE)
    return MetadataDecision(None, [record, *changes.records()], changes.unclean_elections)


def shut_down_broker(image: ClusterImage, broker: int, rules_of: RulesOf) -> MetadataDecision[None]:
    """Move the leaders of a broker that is about to stop, and take it out of every ISR."""
    state = image.brokers[broker]
    changes = partition_changes(image, rules_of)
    changes.leave((broker,))
    records: list[Data] = []
    if not state.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker, broker_epoch=state.epoch, in_controlled_shutdown=ENTER_SHUTDOWN
            )
        )
    return MetadataDecision(None, records + changes.records(), changes.unclean_elections)


def fail_directories(
    image: ClusterImage, broker: int, offline: Collection[bytes], rules_of: RulesOf
) -> MetadataDecision[None]:
    """Some of the broker's log directories cannot be read any more: others lead what they contain."""
    state = image.brokers[broker]
    online = [directory for directory in state.directories if directory not in offline]
    if len(online) == len(state.directories):
        return MetadataDecision(None)
    if not online:
        fenced = fence_brokers(image, (broker,), rules_of)
        return MetadataDecision(None, fenced.records, fenced.unclean_elections)
    changes = partition_changes(image, rules_of)
    changes.fail_directories(state, offline)
    record = BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=state.epoch, log_dirs=online)
    return MetadataDecision(None, [record, *changes.records()], changes.unclean_elections)


def unregister_broker(image: ClusterImage, broker: int, rules_of: RulesOf) -> MetadataDecision[None]:
    """Forget a broker that will not come back. One that still runs registers again."""
    state = image.brokers.get(broker)
    if state is None:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker} is not currently registered")
    changes = partition_changes(image, rules_of)
    changes.lose(broker)
    record = UnregisterBrokerRecord(broker_id=broker, broker_epoch=state.epoch)
    return MetadataDecision(None, [*changes.records(), record], changes.unclean_elections)


def check_epoch(image: ClusterImage, broker: int, epoch: int) -> BrokerState:
    """The registration that a request speaks of. Refusal: it was replaced, or never made."""
    state = image.brokers.get(broker)
    if state is None:
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker}")
    if state.epoch != epoch:
        raise Refusal(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {state.epoch}, but got broker epoch {epoch}"
        )
    return state


def finalize_features(
    image: ClusterImage, levels: Mapping[str, int], min_insync_replicas: str
) -> MetadataDecision[None]:
    """Sets the levels that are not set already.

    With eligible leader replicas, the controller and all leaders must agree about min.insync.replicas: a
    value from the controller's file becomes one for all brokers, as in Kafka. 1 is everybody's default.
    """
    records: list[Data] = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in sorted(levels.items())
        if name not in image.features
    ]
    if (
        (ELIGIBLE_LEADER_REPLICAS_VERSION in levels or tracks_eligible(image))
        and min_insync_replicas.strip() != "1"
        and MIN_INSYNC_REPLICAS not in image.cluster_config
    ):
        records.append(
            ConfigRecord(
                resource_type=BROKER_RESOURCE,
                resource_name=ALL_BROKERS,
                name=MIN_INSYNC_REPLICAS,
                value=min_insync_replicas,
            )
        )
    return MetadataDecision(None, records)
