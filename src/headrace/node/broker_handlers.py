"""The handlers of the broker role, each with the parts that it needs.

A handler is built, and its module imported, when the first request of its API arrives.
"""

from typing import TYPE_CHECKING

from headrace.node.routes import Handle, Learn, Routes
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
        routes.serve(ApiKey.PRODUCE, BROKER, self.produce, learn=self.learn_produce, has_records=True)
        routes.serve(ApiKey.APPEND_AT, BROKER, self.append_at, has_records=True)
        routes.serve(
            ApiKey.OFFSET_COMMIT, BROKER, self.offset_commit, learn=self.learn_commit, in_columns=True
        )
        routes.serve(ApiKey.TXN_OFFSET_COMMIT, BROKER, self.txn_offset_commit, in_columns=True)
        routes.serve(ApiKey.FETCH, BROKER, self.fetch, learn=self.learn_fetch)
        for api_key, make in (
            (ApiKey.LIST_OFFSETS, self.list_offsets),
            (ApiKey.DELETE_RECORDS, self.delete_records),
            (ApiKey.OFFSET_FOR_LEADER_EPOCH, self.offset_for_leader_epoch),
            (ApiKey.DESCRIBE_PRODUCERS, self.describe_producers),
            (ApiKey.SPLIT_RANGES, self.split_ranges),
            (ApiKey.METADATA, self.metadata),
            (ApiKey.DESCRIBE_CLUSTER, self.describe_cluster),
            (ApiKey.DESCRIBE_TOPIC_PARTITIONS, self.describe_topic_partitions),
            (ApiKey.DESCRIBE_CONFIGS, self.describe_configs),
            (ApiKey.LIST_CONFIG_RESOURCES, self.list_config_resources),
            (ApiKey.DESCRIBE_ACLS, self.describe_acls),
            (ApiKey.DESCRIBE_CLIENT_QUOTAS, self.describe_client_quotas),
            (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, self.describe_user_scram_credentials),
            (ApiKey.DESCRIBE_DELEGATION_TOKEN, self.describe_delegation_token),
            (ApiKey.ALTER_REPLICA_LOG_DIRS, self.alter_replica_log_dirs),
            (ApiKey.DESCRIBE_LOG_DIRS, self.describe_log_dirs),
            (ApiKey.FIND_COORDINATOR, self.find_coordinator),
            (ApiKey.JOIN_GROUP, self.join_group),
            (ApiKey.SYNC_GROUP, self.sync_group),
            (ApiKey.HEARTBEAT, self.heartbeat),
            (ApiKey.LEAVE_GROUP, self.leave_group),
            (ApiKey.DESCRIBE_GROUPS, self.describe_groups),
            (ApiKey.LIST_GROUPS, self.list_groups),
            (ApiKey.DELETE_GROUPS, self.delete_groups),
            (ApiKey.CONSUMER_GROUP_HEARTBEAT, self.consumer_group_heartbeat),
            (ApiKey.CONSUMER_GROUP_DESCRIBE, self.consumer_group_describe),
            (ApiKey.OFFSET_FETCH, self.offset_fetch),
            (ApiKey.OFFSET_DELETE, self.offset_delete),
            (ApiKey.INIT_PRODUCER_ID, self.init_producer_id),
            (ApiKey.ADD_PARTITIONS_TO_TXN, self.add_partitions_to_txn),
            (ApiKey.ADD_OFFSETS_TO_TXN, self.add_offsets_to_txn),
            (ApiKey.END_TXN, self.end_txn),
            (ApiKey.WRITE_TXN_MARKERS, self.write_txn_markers),
            (ApiKey.DESCRIBE_TRANSACTIONS, self.describe_transactions),
            (ApiKey.LIST_TRANSACTIONS, self.list_transactions),
            (ApiKey.JOIN_SINK, self.join_sink),
            (ApiKey.COMMIT_SINK, self.commit_sink),
            (ApiKey.ABORT_SINK, self.abort_sink),
            (ApiKey.LIST_SINKS, self.list_sinks),
            (ApiKey.RESET_SINK, self.reset_sink),
        ):
            routes.serve(api_key, BROKER, make)

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
