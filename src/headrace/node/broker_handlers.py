"""The handlers of the broker role, each with the parts that it needs.

A handler is built, and its module imported, when the first request of its API arrives.
"""

from typing import TYPE_CHECKING

from headrace.node.routes import Handle, Learn, RoleApis, Routes, Served
from headrace.protocol.api import BROKER, ApiKey

if TYPE_CHECKING:
    from headrace.node.broker import Broker
    from headrace.node.handlers.fetch import Fetch


class BrokerHandlers:
    def __init__(self, broker: "Broker") -> None:
        self._broker_id = broker.id
        self._partitions = broker.partitions
        self._feeds = broker.feeds
        self._directories = broker.directories
        self._metadata = broker.metadata
        self._transactions = broker.transactions
        self._permits = broker.permits
        self._access = broker.access
        self._reports = broker.ports.reports
        self._waiting = broker.ports.waiting
        self._metrics = broker.metrics
        self._fetch_sessions = broker.fetch_sessions
        self._settings = broker.settings
        self._jobs = broker.ports.jobs
        self._creations = broker.creations
        self._vanished = broker.vanished
        self._slicing = broker.slicing
        self._moves = broker.moves
        self._groups = broker.groups
        self._sinks = broker.sinks
        self._producer_ids = broker.producer_ids
        self._topics = broker.topics
        self._markers = broker.markers

    def register(self, routes: Routes) -> None:
        routes.serve(self, SERVED_BY_BROKERS)

    # --- records ----------------------------------------------------------------------------------------

    def produce(self) -> Handle:
        from headrace.node.handlers.produce import Produce

        return Produce(
            self._partitions,
            self._directories,
            self._metadata,
            self._permits,
            self._access,
            self._reports,
            self._waiting,
            self._metrics,
        ).handle

    def learn_produce(self) -> Learn:
        from headrace.node.produce_fast_path import ProduceFastPaths

        return ProduceFastPaths(self._partitions, self._access, self._waiting, self._metrics).learn

    def fetch(self) -> Handle:
        return self._fetch().handle

    def learn_fetch(self) -> Learn:
        from headrace.node.fetch_fast_path import FetchFastPaths

        return FetchFastPaths(
            self._fetch(),
            self._partitions,
            self._fetch_sessions,
            self._settings,
            self._access,
            self._waiting,
        ).learn

    def _fetch(self) -> "Fetch":
        from headrace.node.handlers.fetch import Fetch

        return Fetch(
            self._partitions,
            self._metadata,
            self._fetch_sessions,
            self._feeds,
            self._settings,
            self._access,
            self._waiting,
        )

    def list_offsets(self) -> Handle:
        from headrace.node.handlers.list_offsets import ListOffsets

        return ListOffsets(self._partitions, self._access, self._jobs, self._waiting).handle

    def delete_records(self) -> Handle:
        from headrace.node.handlers.delete_records import DeleteRecords

        return DeleteRecords(
            self._partitions, self._directories, self._access, self._jobs, self._waiting
        ).handle

    def offset_for_leader_epoch(self) -> Handle:
        from headrace.node.handlers.offset_for_leader_epoch import OffsetForLeaderEpoch

        return OffsetForLeaderEpoch(self._partitions, self._access).handle

    def describe_producers(self) -> Handle:
        from headrace.node.handlers.describe_producers import DescribeProducers

        return DescribeProducers(self._partitions, self._access).handle

    def split_ranges(self) -> Handle:
        from headrace.node.handlers.split_ranges import SplitRanges

        return SplitRanges(self._partitions, self._access).handle

    def append_at(self) -> Handle:
        from headrace.node.handlers.append_at import AppendAt

        return AppendAt(self._partitions, self._directories, self._access, self._waiting).handle

    # --- the cluster, as clients see it -----------------------------------------------------------------

    def metadata(self) -> Handle:
        from headrace.node.handlers.metadata import Metadata

        return Metadata(
            self._broker_id,
            self._partitions,
            self._directories,
            self._metadata,
            self._settings,
            self._access,
            self._slicing,
            self._creations,
            self._vanished,
            self._waiting,
        ).handle

    def describe_cluster(self) -> Handle:
        from headrace.node.handlers.describe_cluster import DescribeCluster

        return DescribeCluster(self._broker_id, self._directories, self._metadata, self._access).handle

    def describe_topic_partitions(self) -> Handle:
        from headrace.node.handlers.describe_topic_partitions import DescribeTopicPartitions

        return DescribeTopicPartitions(
            self._broker_id, self._partitions, self._directories, self._metadata, self._settings, self._access
        ).handle

    def describe_configs(self) -> Handle:
        from headrace.node.handlers.describe_configs import DescribeConfigs

        return DescribeConfigs(
            self._broker_id, self._metadata, self._settings, self._access, self._slicing
        ).handle

    def list_config_resources(self) -> Handle:
        from headrace.node.handlers.list_config_resources import ListConfigResources

        return ListConfigResources(self._metadata, self._access).handle

    # --- security ---------------------------------------------------------------------------------------

    def describe_acls(self) -> Handle:
        from headrace.node.handlers.describe_acls import DescribeAcls

        return DescribeAcls(self._metadata, self._access).handle

    def describe_client_quotas(self) -> Handle:
        from headrace.node.handlers.describe_client_quotas import DescribeClientQuotas

        return DescribeClientQuotas(self._metadata, self._access).handle

    def describe_user_scram_credentials(self) -> Handle:
        from headrace.node.handlers.describe_user_scram_credentials import DescribeUserScramCredentials

        return DescribeUserScramCredentials(self._metadata, self._access).handle

    def describe_delegation_token(self) -> Handle:
        from headrace.node.handlers.describe_delegation_token import DescribeDelegationToken
        from headrace.node.token_requests import TokenRequests, delegation_tokens

        settings, metadata = self._settings.current, self._metadata
        tokens = delegation_tokens(settings.texts, lambda: metadata.image.security.tokens)
        return DescribeDelegationToken(metadata, tokens, TokenRequests(settings), self._access).handle

    # --- log directories --------------------------------------------------------------------------------

    def alter_replica_log_dirs(self) -> Handle:
        from headrace.node.handlers.alter_replica_log_dirs import AlterReplicaLogDirs

        return AlterReplicaLogDirs(
            self._partitions, self._directories, self._moves, self._settings, self._access
        ).handle

    def describe_log_dirs(self) -> Handle:
        from headrace.node.handlers.describe_log_dirs import DescribeLogDirs

        return DescribeLogDirs(
            self._partitions, self._directories, self._moves, self._access, self._slicing
        ).handle

    # --- groups -----------------------------------------------------------------------------------------

    def find_coordinator(self) -> Handle:
        from headrace.node.handlers.find_coordinator import FindCoordinator

        return FindCoordinator(
            self._metadata,
            self._groups,
            self._transactions,
            self._sinks,
            self._producer_ids,
            self._access,
            self._vanished,
            self._waiting,
        ).handle

    def join_group(self) -> Handle:
        from headrace.node.handlers.join_group import JoinGroup

        return JoinGroup(self._groups, self._waiting).handle

    def sync_group(self) -> Handle:
        from headrace.node.handlers.sync_group import SyncGroup

        return SyncGroup(self._groups, self._waiting).handle

    def heartbeat(self) -> Handle:
        from headrace.node.handlers.heartbeat import Heartbeat

        return Heartbeat(self._groups).handle

    def leave_group(self) -> Handle:
        from headrace.node.handlers.leave_group import LeaveGroup

        return LeaveGroup(self._groups).handle

    def describe_groups(self) -> Handle:
        from headrace.node.handlers.describe_groups import DescribeGroups

        return DescribeGroups(self._groups, self._access, self._waiting).handle

    def list_groups(self) -> Handle:
        from headrace.node.handlers.list_groups import ListGroups

        return ListGroups(self._groups, self._access, self._waiting).handle

    def delete_groups(self) -> Handle:
        from headrace.node.handlers.delete_groups import DeleteGroups

        return DeleteGroups(self._groups, self._waiting).handle

    def consumer_group_heartbeat(self) -> Handle:
        from headrace.node.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeat

        return ConsumerGroupHeartbeat(self._groups, self._settings, self._access).handle

    def consumer_group_describe(self) -> Handle:
        from headrace.node.handlers.consumer_group_describe import ConsumerGroupDescribe

        return ConsumerGroupDescribe(self._groups, self._access, self._waiting).handle

    def offset_commit(self) -> Handle:
        from headrace.node.handlers.offset_commit import OffsetCommit

        return OffsetCommit(self._groups, self._topics, self._access).handle

    def learn_commit(self) -> Learn:
        from headrace.node.commit_fast_path import CommitFastPaths

        return CommitFastPaths(self._groups, self._topics, self._access, self._waiting).learn

    def offset_fetch(self) -> Handle:
        from headrace.node.handlers.offset_fetch import OffsetFetch

        return OffsetFetch(self._groups, self._topics, self._access, self._waiting).handle

    def offset_delete(self) -> Handle:
        from headrace.node.handlers.offset_delete import OffsetDelete

        return OffsetDelete(self._groups, self._topics, self._access).handle

    # --- transactions -----------------------------------------------------------------------------------

    def init_producer_id(self) -> Handle:
        from headrace.node.handlers.init_producer_id import InitProducerId

        return InitProducerId(self._waiting, self._transactions, self._producer_ids, self._access).handle

    def add_partitions_to_txn(self) -> Handle:
        from headrace.node.handlers.add_partitions_to_txn import AddPartitionsToTxn

        return AddPartitionsToTxn(
            self._topics, self._transactions, self._permits, self._access, self._waiting
        ).handle

    def add_offsets_to_txn(self) -> Handle:
        from headrace.node.handlers.add_offsets_to_txn import AddOffsetsToTxn

        return AddOffsetsToTxn(self._groups, self._transactions, self._access).handle

    def end_txn(self) -> Handle:
        from headrace.node.handlers.end_txn import EndTxn

        return EndTxn(self._transactions, self._producer_ids).handle

    def write_txn_markers(self) -> Handle:
        from headrace.node.handlers.write_txn_markers import WriteTxnMarkers

        return WriteTxnMarkers(
            self._partitions, self._directories, self._markers, self._access, self._waiting
        ).handle

    def txn_offset_commit(self) -> Handle:
        from headrace.node.handlers.txn_offset_commit import TxnOffsetCommit

        return TxnOffsetCommit(self._groups, self._topics, self._permits, self._access, self._waiting).handle

    def describe_transactions(self) -> Handle:
        from headrace.node.handlers.describe_transactions import DescribeTransactions

        return DescribeTransactions(self._transactions, self._access, self._waiting).handle

    def list_transactions(self) -> Handle:
        from headrace.node.handlers.list_transactions import ListTransactions

        return ListTransactions(self._transactions, self._access, self._waiting).handle

    # --- sinks ------------------------------------------------------------------------------------------

    def join_sink(self) -> Handle:
        from headrace.node.handlers.join_sink import JoinSink

        return JoinSink(self._sinks, self._producer_ids).handle

    def commit_sink(self) -> Handle:
        from headrace.node.handlers.commit_sink import CommitSink

        return CommitSink(self._sinks).handle

    def abort_sink(self) -> Handle:
        from headrace.node.handlers.abort_sink import AbortSink

        return AbortSink(self._sinks).handle

    def list_sinks(self) -> Handle:
        from headrace.node.handlers.list_sinks import ListSinks

        return ListSinks(self._sinks, self._access, self._waiting).handle

    def reset_sink(self) -> Handle:
        from headrace.node.handlers.reset_sink import ResetSink

        return ResetSink(self._sinks).handle


SERVED_BY_BROKERS = RoleApis(
    (
        Served(
            ApiKey.PRODUCE,
            BROKER,
            BrokerHandlers.produce,
            learn=BrokerHandlers.learn_produce,
            has_records=True,
        ),
        Served(ApiKey.APPEND_AT, BROKER, BrokerHandlers.append_at, has_records=True),
        Served(
            ApiKey.OFFSET_COMMIT,
            BROKER,
            BrokerHandlers.offset_commit,
            learn=BrokerHandlers.learn_commit,
            in_columns=True,
        ),
        Served(ApiKey.TXN_OFFSET_COMMIT, BROKER, BrokerHandlers.txn_offset_commit, in_columns=True),
        Served(ApiKey.FETCH, BROKER, BrokerHandlers.fetch, learn=BrokerHandlers.learn_fetch),
        Served(ApiKey.LIST_OFFSETS, BROKER, BrokerHandlers.list_offsets),
        Served(ApiKey.DELETE_RECORDS, BROKER, BrokerHandlers.delete_records),
        Served(ApiKey.OFFSET_FOR_LEADER_EPOCH, BROKER, BrokerHandlers.offset_for_leader_epoch),
        Served(ApiKey.DESCRIBE_PRODUCERS, BROKER, BrokerHandlers.describe_producers),
        Served(ApiKey.SPLIT_RANGES, BROKER, BrokerHandlers.split_ranges),
        Served(ApiKey.METADATA, BROKER, BrokerHandlers.metadata),
        Served(ApiKey.DESCRIBE_CLUSTER, BROKER, BrokerHandlers.describe_cluster),
        Served(ApiKey.DESCRIBE_TOPIC_PARTITIONS, BROKER, BrokerHandlers.describe_topic_partitions),
        Served(ApiKey.DESCRIBE_CONFIGS, BROKER, BrokerHandlers.describe_configs),
        Served(ApiKey.LIST_CONFIG_RESOURCES, BROKER, BrokerHandlers.list_config_resources),
        Served(ApiKey.DESCRIBE_ACLS, BROKER, BrokerHandlers.describe_acls),
        Served(ApiKey.DESCRIBE_CLIENT_QUOTAS, BROKER, BrokerHandlers.describe_client_quotas),
        Served(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, BROKER, BrokerHandlers.describe_user_scram_credentials
        ),
        Served(ApiKey.DESCRIBE_DELEGATION_TOKEN, BROKER, BrokerHandlers.describe_delegation_token),
        Served(ApiKey.ALTER_REPLICA_LOG_DIRS, BROKER, BrokerHandlers.alter_replica_log_dirs),
        Served(ApiKey.DESCRIBE_LOG_DIRS, BROKER, BrokerHandlers.describe_log_dirs),
        Served(ApiKey.FIND_COORDINATOR, BROKER, BrokerHandlers.find_coordinator),
        Served(ApiKey.JOIN_GROUP, BROKER, BrokerHandlers.join_group),
        Served(ApiKey.SYNC_GROUP, BROKER, BrokerHandlers.sync_group),
        Served(ApiKey.HEARTBEAT, BROKER, BrokerHandlers.heartbeat),
        Served(ApiKey.LEAVE_GROUP, BROKER, BrokerHandlers.leave_group),
        Served(ApiKey.DESCRIBE_GROUPS, BROKER, BrokerHandlers.describe_groups),
        Served(ApiKey.LIST_GROUPS, BROKER, BrokerHandlers.list_groups),
        Served(ApiKey.DELETE_GROUPS, BROKER, BrokerHandlers.delete_groups),
        Served(ApiKey.CONSUMER_GROUP_HEARTBEAT, BROKER, BrokerHandlers.consumer_group_heartbeat),
        Served(ApiKey.CONSUMER_GROUP_DESCRIBE, BROKER, BrokerHandlers.consumer_group_describe),
        Served(ApiKey.OFFSET_FETCH, BROKER, BrokerHandlers.offset_fetch),
        Served(ApiKey.OFFSET_DELETE, BROKER, BrokerHandlers.offset_delete),
        Served(ApiKey.INIT_PRODUCER_ID, BROKER, BrokerHandlers.init_producer_id),
        Served(ApiKey.ADD_PARTITIONS_TO_TXN, BROKER, BrokerHandlers.add_partitions_to_txn),
        Served(ApiKey.ADD_OFFSETS_TO_TXN, BROKER, BrokerHandlers.add_offsets_to_txn),
        Served(ApiKey.END_TXN, BROKER, BrokerHandlers.end_txn),
        Served(ApiKey.WRITE_TXN_MARKERS, BROKER, BrokerHandlers.write_txn_markers),
        Served(ApiKey.DESCRIBE_TRANSACTIONS, BROKER, BrokerHandlers.describe_transactions),
        Served(ApiKey.LIST_TRANSACTIONS, BROKER, BrokerHandlers.list_transactions),
        Served(ApiKey.JOIN_SINK, BROKER, BrokerHandlers.join_sink),
        Served(ApiKey.COMMIT_SINK, BROKER, BrokerHandlers.commit_sink),
        Served(ApiKey.ABORT_SINK, BROKER, BrokerHandlers.abort_sink),
        Served(ApiKey.LIST_SINKS, BROKER, BrokerHandlers.list_sinks),
        Served(ApiKey.RESET_SINK, BROKER, BrokerHandlers.reset_sink),
    )
)
