"""The cluster: its brokers, its features, and the quorum of its controllers."""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from headrace.base.ids import id_from_text, id_text
from headrace.client.admin.operation import (
    ANY,
    CONTROLLER,
    Ask,
    NoSuchBroker,
    OfBroker,
    Operation,
    Outcome,
    Sent,
    ask,
    ask_one,
    check,
    settled,
)
from headrace.client.admin.topics import metadata_request
from headrace.client.cluster import Address
from headrace.client.errors import BadResponse, ClientError, InvalidInput
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from headrace.protocol.messages.unregister_broker import UnregisterBrokerRequest
from headrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.protocol.notation import Request

V = TypeVar("V")

METADATA_TOPIC = "__cluster_metadata"
THE_CLUSTER = "the cluster"
THE_QUORUM = "the quorum of controllers"


class Broker(NamedTuple):
    """A broker and its address.

    >>> admin.describe_cluster().brokers[0].broker_id
    1
    """

    broker_id: int
    address: Address
    rack: str | None
    is_fenced: bool = False


class ClusterDescription(NamedTuple):
    """The cluster: its id, its controller and its brokers.

    >>> cluster = admin.describe_cluster()
    >>> cluster.controller_id, len(cluster.brokers)
    (1, 1)
    """

    cluster_id: str
    controller_id: int  # who takes orders; any broker passes them on
    brokers: list[Broker]


def describe_cluster(*, include_fenced: bool = False) -> Operation[ClusterDescription]:
    """The cluster and its brokers; on request also brokers that the controller has fenced.

    >>> [broker.broker_id for broker in admin.describe_cluster().brokers]
    [1]
    """

    def read(answer: Any) -> ClusterDescription:
        check(answer.error_code, answer.error_message, subject=THE_CLUSTER)
        brokers = [
            Broker(told.broker_id, Address(told.host, told.port), told.rack, told.is_fenced)
            for told in sorted(answer.brokers, key=lambda told: int(told.broker_id))
        ]
        return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

    request = DescribeClusterRequest(include_fenced_brokers=include_fenced)
    return (yield from ask_one("describing the cluster", ANY, lambda _: request, read))


def list_brokers() -> Operation[list[Broker]]:
    """The brokers that clients can connect to; works with old brokers, too.

    >>> [broker.broker_id for broker in admin.list_brokers()]
    [1]
    """

    def read(answer: Any) -> list[Broker]:
        return sorted(
            Broker(told.node_id, Address(told.host, told.port), told.rack) for told in answer.brokers
        )

    return (yield from ask_one("asking for the brokers", ANY, lambda _: metadata_request(()), read))


def broker_ids() -> Operation[list[int]]:
    """Of all brokers that are there now."""
    return [broker.broker_id for broker in (yield from list_brokers())]


def ask_every_broker(
    what: str, request: Request, read: Callable[[Any, Sent[int]], Mapping[int, V | ClientError]]
) -> Operation[dict[int, V]]:
    """The same question to all brokers. If one has left meanwhile, all others are asked again: they may have
    taken over what it would have told.
    """
    while True:
        targets = {broker: OfBroker(broker) for broker in (yield from broker_ids())}
        outcome: Outcome[int, V] = yield from ask(Ask(what, targets, lambda *_: request, read))
        if not any(isinstance(told, NoSuchBroker) for told in outcome.values()):
            return settled(outcome)


def unregister_broker(broker_id: int) -> Operation[None]:
    """Removes a broker that was shut down permanently from the cluster.

    >>> admin.unregister_broker(77)  # doctest: +SKIP
    """
    request = UnregisterBrokerRequest(broker_id=broker_id)
    subject = f"broker {broker_id}"
    yield from _order(f"unregistering {subject}", lambda _: request, subject)


def _order(
    what: str, make: Callable[[int], Request], subject: str, *, final: frozenset[int] = frozenset()
) -> Operation[None]:
    """A change whose answer is one error code."""

    def read(answer: Any) -> None:
        check(answer.error_code, answer.error_message, subject=subject)

    yield from ask_one(what, CONTROLLER, make, read, final=final)


# --- features --------------------------------------------------------------------------------------------


class Levels(NamedTuple):
    """The lowest and highest level of a feature.

    >>> Levels(1, 4).highest
    4
    """

    lowest: int
    highest: int


class Features(NamedTuple):
    """The finalized features of the cluster, and the levels that the broker supports.

    >>> admin.describe_features().finalized["metadata.version"].highest > 0
    True
    """

    finalized: dict[str, Levels]
    supported: dict[str, Levels]
    epoch: int | None  # of what is finalized; None from brokers that do not tell


class FeatureChange(IntEnum):
    """Whether a feature's level may be raised or lowered.

    >>> FeatureChange.UPGRADE.name
    'UPGRADE'
    """

    UPGRADE = 1
    SAFE_DOWNGRADE = 2  # only where no data is lost by it
    UNSAFE_DOWNGRADE = 3


def describe_features() -> Operation[Features]:
    """The finalized and the supported levels of features.

    >>> "metadata.version" in admin.describe_features().supported
    True
    """

    def read(answer: Any) -> Features:
        check(answer.error_code, subject="features")
        return Features(
            {
                told.name: Levels(told.min_version_level, told.max_version_level)
                for told in answer.finalized_features
            },
            {told.name: Levels(told.min_version, told.max_version) for told in answer.supported_features},
            answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else None,
        )

    # a broker refuses a name or a version that is none
    request = ApiVersionsRequest(client_software_name="headrace", client_software_version="admin")
    return (yield from ask_one("describing features", ANY, lambda _: request, read))


def update_features(
    levels: Mapping[str, int], *, change: FeatureChange = FeatureChange.UPGRADE, validate_only: bool = False
) -> Operation[None]:
    """Changes the levels of features, all or none; level 0 disables a feature.

    >>> level = admin.describe_features().finalized["metadata.version"].highest
    >>> admin.update_features({"metadata.version": level}, validate_only=True)
    """

    def make(timeout_ms: int) -> UpdateFeaturesRequest:
        return UpdateFeaturesRequest(
            timeout_ms=timeout_ms,
            feature_updates=[
                FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=change)
                for feature, level in levels.items()
            ],
            validate_only=validate_only,
        )

    def read(answer: Any) -> None:
        for told in answer.results:
            check(told.error_code, told.error_message, subject=f"feature {told.feature!r}")
        check(answer.error_code, answer.error_message, subject=f"features {', '.join(levels)}")

    yield from ask_one("updating features", CONTROLLER, make, read)


# --- the controllers -------------------------------------------------------------------------------------


class QuorumReplica(NamedTuple):
    """A voter of the metadata quorum, or an observer.

    >>> admin.describe_quorum().voters[0].replica_id
    1
    """

    replica_id: int
    directory_id: str
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


class Quorum(NamedTuple):
    """The metadata quorum: the leader, and the replicas with their log end offsets.

    >>> quorum = admin.describe_quorum()
    >>> quorum.leader_id, [voter.replica_id for voter in quorum.voters]
    (1, [1])
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    addresses: dict[int, dict[str, Address]]  # of each voter by the listener's name


def describe_quorum() -> Operation[Quorum]:
    """The leader of the metadata quorum, its voters and observers.

    >>> admin.describe_quorum().high_watermark > 0
    True
    """
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
    )

    def read(answer: Any) -> Quorum:
        check(answer.error_code, answer.error_message, subject=THE_QUORUM)
        told = next((one for topic in answer.topics for one in topic.partitions), None)
        if told is None:
            raise BadResponse("the broker's DescribeQuorum response does not contain the metadata quorum")
        check(told.error_code, told.error_message, subject=THE_QUORUM)
        return Quorum(
            told.leader_id,
            told.leader_epoch,
            told.high_watermark,
            [_replica(one) for one in told.current_voters],
            [_replica(one) for one in told.observers],
            {
                node.node_id: {one.name: Address(one.host, one.port) for one in node.listeners}
                for node in answer.nodes
            },
        )

    return (yield from ask_one("describing the quorum", CONTROLLER, lambda _: request, read))


def _replica(told: Any) -> QuorumReplica:
    return QuorumReplica(
        told.replica_id,
        id_text(told.replica_directory_id),
        told.log_end_offset,
        told.last_fetch_timestamp if told.last_fetch_timestamp >= 0 else None,
        told.last_caught_up_timestamp if told.last_caught_up_timestamp >= 0 else None,
    )


def add_voter(voter_id: int, directory_id: str, listeners: Mapping[str, tuple[str, int]]) -> Operation[None]:
    """Makes an observer a voter; `listeners` has host and port by listener name.

    >>> here = {"CONTROLLER": ("localhost", 9)}
    >>> admin.add_voter(2, "AAAAAAAAAAAAAAAAAAAAAg", here)  # doctest: +SKIP
    """

    def make(timeout_ms: int) -> AddRaftVoterRequest:
        return AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=timeout_ms,
            voter_id=voter_id,
            voter_directory_id=_directory_id(directory_id),
            listeners=[Listener(name=name, host=host, port=port) for name, (host, port) in listeners.items()],
        )

    # the controller itself has tried for all that time to reach the voter
    final = frozenset({ErrorCode.REQUEST_TIMED_OUT})
    yield from _order(f"adding voter {voter_id}", make, f"voter {voter_id}", final=final)


def remove_voter(voter_id: int, directory_id: str) -> Operation[None]:
    """Removes a voter from the metadata quorum.

    >>> admin.remove_voter(2, "AAAAAAAAAAAAAAAAAAAAAg")  # doctest: +SKIP
    """
    request = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=voter_id, voter_directory_id=_directory_id(directory_id)
    )
    yield from _order(f"removing voter {voter_id}", lambda _: request, f"voter {voter_id}")


def _directory_id(text: str) -> bytes:
    try:
        return id_from_text(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a directory id") from error
