"""Fetching from leaders: one connection to each broker that leads partitions which this broker follows.

A fetcher and its leader share a session, so that a request names only the partitions that have changed: an
idle partition costs nothing. One request is always waiting at the leader, which answers as soon as any
partition has something new. If the follower has something to say meanwhile, it sends a second request at
once, and the leader then answers the first. A session ends with its connection, and the next one begins with
all partitions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.base.ids import BrokerId, Epoch, TopicId
from headrace.base.time import Now
from headrace.machines.replication.follower import PartitionFollower
from headrace.node.following import Following, KeptAnswers
from headrace.node.log_directories import LogDirectories
from headrace.node.log_starts import LogStarts
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.peers import Peer, Unanswered
from headrace.node.ports import Once, Ports
from headrace.node.settings import LiveSettings
from headrace.node.vanished_brokers import VanishedBrokers
from headrace.node.waiting import Waiter
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from headrace.storage.errors import StorageError

LANE = "replica"

# Before a log that could not be opened is opened again.
RETRY_MS = 1_000

NEW_SESSION = 0
IN_FLIGHT_MAX = 2

# Between two tries to reach a leader: a broker that has just started is there in milliseconds, and metadata
# with another leader come soon.
BACKOFF_MS_MIN = 20
BACKOFF_MS_MAX = 1_000

Key = tuple[bytes, int]  # topic id and partition


class ReplicaFetchers:
    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        metadata: MetadataLog,
        settings: LiveSettings,
        directories: LogDirectories,
        vanished: VanishedBrokers,
        ports: Ports,
    ) -> None:
        self._requests = FetchRequests(broker_id, broker_epoch, metadata, settings)
        self._directories = directories
        self._vanished = vanished
        self._ports = ports
        self._starts = LogStarts(directories, ports.jobs)
        self._answers = KeptAnswers(ports.peers)
        self._fetchers: dict[int, Fetcher] = {}  # by the leader's id

    def follow(self, now: Now, partition: Partition) -> None:
        """Another broker leads the partition from now on."""
        if partition.is_offline or partition.is_deleted:
            return
        try:
            log = partition.opened(now)
            last_epoch = log.last_record_epoch()
            damage = log.first_damage()
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)
            self._follow_later(now, partition)
            return
        if damage is not None and self._requests.may_lead(partition):
            self._follow_later(now, partition)
            return
        machine = PartitionFollower(
            BrokerId(partition.leader_id),
            Epoch(partition.leader_epoch),
            log,
            end=log.log_end_offset,
            last_epoch=last_epoch,
            high_watermark=partition.high_watermark,
            log_start=log.log_start_offset,
            flushed_end=log.flushed_offset,
            flushes_each=partition.flushes_each,
        )
        partition.replicated(now)
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is None:
            fetcher = self._fetchers[partition.leader_id] = Fetcher(
                partition.leader_id, self._requests, self._vanished, self._ports
            )
        following = Following(
            partition,
            log,
            machine,
            fetcher.is_due,
            self._starts,
            self._answers,
            self._directories,
            self._ports,
        )
        partition.follower = following
        fetcher.add(following)
        if damage is not None:
            following.repair(now, damage)

    def _follow_later(self, now: Now, partition: Partition) -> None:
        epoch = partition.leader_epoch
        Once(self._ports.deadlines, now.after_ms(RETRY_MS), partial(self._follow_again, partition, epoch))

    def _follow_again(self, partition: Partition, epoch: int, now: Now) -> None:
        """Its log could not be opened: the disk was full, or its name was still taken. Or it is damaged, and
        was not to be cut while this replica could be elected.
        """
        if partition.leader_epoch == epoch and partition.follower is None:
            self.follow(now, partition)

    def unfollow(self, now: Now, partition: Partition) -> None:
        following = partition.follower
        partition.drop_follower()
        if isinstance(following, Following):
            self._fetchers[following.machine.leader_id].remove(following)
            following.end(now)

    def begin_again(self) -> None:
        """This broker has another broker epoch: what it fetched before counts for an earlier run."""
        for fetcher in self._fetchers.values():
            fetcher.begin_again()


class FetchRequests:
    """Makes the requests of all fetchers, and finds the brokers that they go to."""

    __slots__ = ("_broker_epoch", "_broker_id", "_metadata", "_settings")

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        metadata: MetadataLog,
        settings: LiveSettings,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch  # of this run
        self._metadata = metadata
        self._settings = settings

    def peer(self, broker: int) -> Peer | None:
        """Where the broker is reached by other brokers; None: it is not registered."""
        endpoint = self._metadata.image.endpoint(broker, self._settings.current.inter_broker_listener_name)
        return None if endpoint is None else Peer(broker, endpoint.host, endpoint.port)

    def may_lead(self, partition: Partition) -> bool:
        """Whether this replica is taken to have everything that is committed. Until its leader or the
        controller knows better, nothing that is committed may be cut off.
        """
        topic = self._metadata.image.topics_by_id.get(TopicId(partition.topic_id))
        state = topic.partitions.get(partition.index) if topic is not None else None
        return state is not None and self._broker_id in (*state.isr, *state.eligible_leader_replicas)

    def make(
        self,
        session_id: int,
        session_epoch: int,
        followed: list[Following],
        forgotten: list[Key],
    ) -> FetchRequest:
        settings = self._settings.current
        topics: dict[bytes, FetchTopic] = {}
        for following in followed:
            topic_id, machine = following.partition.topic_id, following.machine
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=following.partition.index,
                    current_leader_epoch=machine.epoch,
                    fetch_offset=machine.fetch_offset,
                    last_fetched_epoch=machine.last_epoch,
                    log_start_offset=following.log.log_start_offset,
                    partition_max_bytes=settings.replica_fetch_max_bytes,
                )
            )
        gone: dict[bytes, list[int]] = {}
        for key in forgotten:
            gone.setdefault(key[0], []).append(key[1])
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=id, partitions=indexes) for id, indexes in gone.items()
            ],
        )

    @property
    def timeout_ms(self) -> int:
        return self._settings.current.replica_socket_timeout_ms


class Fetcher(Waiter):
    """Fetches from one leader. It sends at the end of the node's call: many partitions may become due in
    one.
    """

    __slots__ = (
        "_deadlines",
        "_due",
        "_failures",
        "_followed",
        "_forgotten",
        "_in_flight",
        "_is_pausing",
        "_leader_id",
        "_listed",
        "_peers",
        "_requests",
        "_session",
        "_session_epoch",
        "_session_id",
        "_vanished",
        "_waiting",
    )

    def __init__(
        self, leader_id: int, requests: FetchRequests, vanished: VanishedBrokers, ports: Ports
    ) -> None:
        super().__init__()
        self._leader_id = leader_id
        self._requests = requests
        self._vanished = vanished
        self._peers = ports.peers
        self._deadlines = ports.deadlines
        self._waiting = ports.waiting
        self._followed: dict[Key, Following] = {}
        self._due: dict[Following, None] = {}  # to be named in the next request
        # what the leader knows about the partitions of the session: offset, epoch before it, in which request
        self._listed: dict[Key, tuple[int, int, int]] = {}
        self._forgotten: dict[Key, None] = {}
        self._session = (
            0  # how many sessions were given up: answers to requests of an earlier one are dropped
        )
        self._session_id = NEW_SESSION
        self._session_epoch = 0  # of the next request
        self._in_flight = 0
        self._is_pausing = False
        self._failures = 0  # in a row

    def add(self, following: Following) -> None:
        key = key_of(following)
        self._followed[key] = following
        self._forgotten.pop(key, None)
        self.is_due(following)

    def remove(self, following: Following) -> None:
        key = key_of(following)
        if self._followed.get(key) is not following:
            return
        del self._followed[key]
        self._due.pop(following, None)
        if self._listed.pop(key, None) is not None:
            self._forgotten[key] = None
        if not self._followed and self._in_flight:
            self._give_up_session()
            self._peers.close(self._leader_id, LANE)
        elif self._forgotten:
            self._wake()

    def begin_again(self) -> None:
        """Name all partitions to the leader once more."""
        if self._followed:
            self._give_up_session()
            self._wake()

    def is_due(self, following: Following) -> None:
        """It fetches from another offset than the leader knows, or has something else to tell."""
        if self._followed.get(key_of(following)) is following:
            self._due[following] = None
            self._wake()

    def _wake(self) -> None:
        self._waiting.wake_one(self)

    def woken(self, now: Now) -> None:
        if self._is_pausing or not self._followed:
            return
        is_new = self._session_id == NEW_SESSION
        if self._in_flight >= (1 if is_new else IN_FLIGHT_MAX):
            return  # the answer comes first
        if self._in_flight and not self._due and not self._forgotten:
            return
        self._send(now, is_new)

    def _send(self, now: Now, is_new: bool) -> None:
        requests = self._requests
        peer = requests.peer(self._leader_id)
        if peer is None:
            self._pause(now)
            return
        candidates = self._followed.values() if is_new else self._due
        followed = [following for following in candidates if following.is_fetching]
        if is_new and not followed:
            return
        body = requests.make(self._session_id, self._session_epoch, followed, list(self._forgotten))
        self._due.clear()
        self._forgotten.clear()
        for following in followed:
            machine = following.machine
            self._listed[key_of(following)] = machine.fetch_offset, machine.last_epoch, self._session_epoch
        then = partial(self._answered, self._session, self._session_epoch)
        self._session_epoch += 1
        self._in_flight += 1
        self._peers.send(now, peer, LANE, body, requests.timeout_ms, then)

    # --- answers -----------------------------------------------------------------------------------------

    def _answered(self, session: int, session_epoch: int, now: Now, answer: Any) -> None:
        if session != self._session:
            return
        self._in_flight -= 1
        if isinstance(answer, Unanswered):
            if answer is not Unanswered.SILENT:
                self._vanished.lost(now, self._leader_id)
            self._give_up_session()
            self._pause(now)
            return
        if self._failures:
            self._vanished.found(self._leader_id)
        if answer.error_code != ErrorCode.NONE:
            self._give_up_session()
            self._pause(now)
            return
        self._session_id = answer.session_id
        mistakes = self._hand_out(now, session_epoch, answer)
        if mistakes:
            # the leader takes for received what it has sent: a new session tells it otherwise
            self._give_up_session()
            self._pause(now)
            raise mistakes[0]
        self._failures = 0
        if self._session_id == NEW_SESSION:  # the leader keeps none: each request names all partitions
            self._give_up_session()
        self._wake()

    def _hand_out(self, now: Now, session_epoch: int, answer: FetchResponse) -> list[Exception]:
        """A mistake of ours costs its partition, and not the others."""
        mistakes: list[Exception] = []
        for topic in answer.responses:
            for data in topic.partitions:
                key = (bytes(topic.topic_id), data.partition_index)
                following, listed = self._followed.get(key), self._listed.get(key)
                if following is None or listed is None:
                    continue
                offset, last_epoch, named_in = listed
                if named_in > session_epoch:
                    continue  # the leader was told something else since
                try:
                    following.answered(now, (offset, last_epoch), data)
                except Exception as mistake:
                    mistakes.append(mistake)
        return mistakes

    def _give_up_session(self) -> None:
        self._session += 1
        self._session_id = NEW_SESSION
        self._session_epoch = 0
        self._in_flight = 0
        self._listed.clear()
        self._forgotten.clear()
        self._due = dict.fromkeys(self._followed.values())

    def _pause(self, now: Now) -> None:
        if not self._is_pausing:
            self._is_pausing = True
            delay_ms = min(BACKOFF_MS_MIN << min(self._failures, 8), BACKOFF_MS_MAX)
            self._failures += 1
            Once(self._deadlines, now.after_ms(delay_ms), self._go_on)

    def _go_on(self, now: Now) -> None:
        self._is_pausing = False
        self.woken(now)


def key_of(following: Following) -> Key:
    return following.partition.topic_id, following.partition.index
