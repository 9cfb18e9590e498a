"""Play `cluster_coordinators`: groups and transactions on a cluster whose nodes fail.

Copiers read one topic in a group and write each value to another in transactions; ordinary members of another
group read the same topic. Their coordinators move between the nodes all the time, and are often not where the
partitions are. In some runs the cluster has the first transaction protocol, in which one epoch of a producer
has many transactions.
"""

from headrace.client.assignors import ASSIGNORS
from headrace.machines.metadata.versions import TRANSACTION_VERSION
from headrace.node.partition import READ_COMMITTED, Partition
from headrace.records.reader import batches
from headrace.simulator.clients.creator import Creator
from headrace.simulator.clients.downgrader import Downgrader
from headrace.simulator.clients.topics import Topic
from headrace.simulator.cluster import Cluster
from headrace.simulator.cluster_fault_profiles import ClusterProfile
from headrace.simulator.cluster_faults import ClusterFaults
from headrace.simulator.cluster_judges.replica_contents import contents_of, data_of, rows_in
from headrace.simulator.history import (
    AtRest,
    CommittedRead,
    ContentsKnown,
    Copied,
    Finished,
    JudgedWrong,
    PartitionKey,
    Violation,
)
from headrace.simulator.plays import CALM_S, HEALING_S
from headrace.simulator.plays.cluster import RECOVERY_S, admins_of, check_metadata, described, in_sync, stuck
from headrace.simulator.programs.copier import TRANSACTION_TIMEOUT_MS, Copier
from headrace.simulator.programs.explorer import Explorer
from headrace.simulator.programs.member import Member
from headrace.simulator.programs.program import Program
from headrace.simulator.programs.reading import GroupKind
from headrace.simulator.programs.sender import Sender
from headrace.simulator.programs.shell import STALL_S_MAX
from headrace.simulator.world import World
from headrace.storage.partition_producers import end_marker_of

WORKERS = "workers"


class ClusterCoordinators:
    def __init__(self, world: World) -> None:
        rng = world.rng
        self.nodes = rng.choice((1, 2, 3, 3, 3, 4, 5))
        self._is_second_protocol = world.chance(0.6)
        self.settings = {
            "offsets.topic.num.partitions": str(rng.randint(1, 4)),
            "transaction.state.log.num.partitions": str(rng.randint(1, 4)),
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "2000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.assignment.interval.ms": "0",
            "group.initial.rebalance.delay.ms": rng.choice(("0", "200")),
        }

    def live(self, cluster: Cluster, profile: ClusterProfile, seconds: float) -> None:
        world, rng = cluster.world, cluster.world.rng
        configs = {
            "retention.ms": "-1",
            "internal.segment.bytes": "8000",
            "max.message.bytes": "1000",
            "message.timestamp.after.max.ms": str(2**63 - 1),  # clocks of nodes jump, and a copy must succeed
        }
        source = Topic("source", rng.randint(1, 3), configs)
        target = Topic("target", rng.randint(1, 3), configs)
        topics = [source, target]
        creator = Creator(cluster, "creator", topics, min(3, self.nodes))
        feeder = Sender(cluster, "feeder", source, acks=-1, is_idempotent=True)
        copying, working = kind_of(world, "copiers"), kind_of(world, WORKERS)
        copiers = [
            # the first protocol cannot tell a client's late request from a timely one
            Copier(cluster, f"copier{n}", source, target, copying, leaves_ghosts=self._is_second_protocol)
            for n in (1, 2)
        ]
        handled: set[tuple[PartitionKey, int]] = set()
        is_auto = world.chance(0.5)
        members = [
            Member(
                cluster,
                f"member{n}",
                source,
                handled,
                kind=working,
                is_static=n > 1 and world.chance(0.5),
                is_auto=is_auto,
            )
            for n in range(1, rng.randint(2, 3) + 1)
        ]
        auditor = Explorer(cluster, "auditor", target, is_committed=True)
        programs: list[Program] = [feeder, *copiers, *members, auditor]
        admins = admins_of(cluster, profile)

        def are_in_sync() -> bool:
            return in_sync(cluster, topics)

        def may_lose() -> bool:
            """With fewer than three nodes a record is acknowledged when one of them has it in memory, unless
            it is flushed before.
            """
            return profile.flushes_each or (
                self.nodes >= 3 and are_all_in_sync(cluster) and cluster.are_recovered
            )

        faults = ClusterFaults(cluster, programs, profile, may_lose)
        cluster.start()
        creator.begin()
        if not cluster.when(lambda: creator.has_created, HEALING_S):
            raise stuck(cluster, "topics are not created")
        if not self._is_second_protocol:
            downgrader = Downgrader(cluster, "downgrader", TRANSACTION_VERSION, 1)
            downgrader.begin()
            if not cluster.when(lambda: downgrader.is_done, HEALING_S):
                raise stuck(cluster, "the transaction protocol is not changed")
        if not cluster.when(are_in_sync, HEALING_S):
            raise stuck(cluster, f"replicas are not in sync: {described(cluster, topics)}")
        for program in programs:
            program.begin()
        for admin in admins:
            admin.begin()
        faults.begin()
        world.run(world.mono + seconds)

        faults.stop()
        for admin in admins:
            admin.is_stopping = True
        for program in programs:
            program.is_careful = True
        feeder.is_stopping = True
        auditor.rest()
        world.run(world.mono + STALL_S_MAX + CALM_S)
        if not cluster.when(are_in_sync, RECOVERY_S):
            raise stuck(cluster, f"replicas are not in sync: {described(cluster, topics)}", RECOVERY_S)
        if not cluster.when(lambda: all(one.is_over for one in admins), HEALING_S):
            raise stuck(cluster, "admin clients are not served")
        if not cluster.when(lambda: feeder.is_idle, HEALING_S):
            raise stuck(cluster, "the producer does not tell what became of its records")
        if not cluster.when(lambda: are_open(cluster, topics), HEALING_S):
            raise stuck(cluster, "not all logs are opened")
        world.run(world.mono + CALM_S)
        check_metadata(cluster, admins)
        self._demand_progress(cluster, source, target, handled, auditor)

    @staticmethod
    def _demand_progress(
        cluster: Cluster,
        source: Topic,
        target: Topic,
        handled: set[tuple[PartitionKey, int]],
        auditor: Explorer,
    ) -> None:
        """Everything is copied and handled, and nothing is left open."""
        world = cluster.world

        def originals() -> list[bytes]:
            return [value for key in source.keys for _, value in contents_on_all(cluster, key)]

        def copies() -> list[bytes]:
            return [value.split(b":", 2)[2] for key in target.keys for _, value in committed_in(cluster, key)]

        ends_at = world.mono + HEALING_S
        while len(copies()) < len(originals()):  # looking takes long: not after every event
            if world.mono > ends_at:
                raise stuck(cluster, f"{len(copies())} of {len(originals())} values are copied")
            world.run(world.mono + CALM_S)
        world.run(world.mono + TRANSACTION_TIMEOUT_MS / 1000 + CALM_S)  # one too many would come now
        if not cluster.when(lambda: are_at_end(cluster), HEALING_S):
            raise stuck(cluster, "not everything is committed")
        contents = {key: contents_on_all(cluster, key) for key in source.keys}
        work = {(key, offset) for key, rows in contents.items() for offset, _ in rows}
        if not cluster.when(lambda: handled >= work, HEALING_S):
            raise stuck(cluster, f"{len(work - handled)} of {len(work)} records are not handled")
        committed = {key: committed_in(cluster, key) for key in target.keys}
        for key, rows in committed.items():
            cluster.history.add(CommittedRead("the end", key, rows, rows[-1][0] + 1 if rows else 0))
        cluster.history.add(Copied(originals(), copies()))
        cluster.history.add(AtRest(stable_ends(cluster)))
        ends = {key: rows[-1][0] + 1 for key, rows in committed.items() if rows}
        if not cluster.when(lambda: auditor.has_read(ends), HEALING_S):
            raise stuck(cluster, "not everything is shown to those who read")
        finished = Finished({}, {}, {})
        for key, rows in contents.items():
            finished.starts[key], finished.contents[key] = 0, rows
            finished.ends[key] = rows[-1][0] + 1 if rows else 0
        cluster.history.add(finished)
        cluster.history.add(ContentsKnown(contents | committed, {WORKERS: source.name}))


def kind_of(world: World, group: str) -> GroupKind:
    protocol = world.rng.choice(("classic", "consumer"))
    return GroupKind(group, protocol, world.rng.choice(sorted(ASSIGNORS)))


def are_all_in_sync(cluster: Cluster) -> bool:
    """Whether a host may be lost: all replicas of all topics, the coordinators' too, have everything."""
    images = [node.controller.metadata.image for node in cluster.nodes().values() if node.is_ready]
    return len(images) == cluster.brokers and all(
        partition.leader >= 0 and set(partition.isr) == set(partition.replicas)
        for image in images
        for _, _, partition in image.partitions()
    )


def contents_on_all(cluster: Cluster, key: PartitionKey) -> list[tuple[int, bytes]]:
    try:
        return contents_of(cluster, key)[1]
    except Violation as violation:
        event = "all replicas are in sync"
        raise JudgedWrong("replicas_agree", str(violation), cluster.history.count, event) from None


def are_open(cluster: Cluster, topics: list[Topic]) -> bool:
    """Whether each replica can be looked at: after a start logs are opened when they are needed."""
    names = {topic.name for topic in topics}
    return all(
        partition.log is not None
        for node in cluster.nodes().values()
        for partition in node.broker.partitions.all()
        if partition.topic in names
    )


def are_at_end(cluster: Cluster) -> bool:
    """Whether everything is committed, and every transaction is over."""
    return all(
        log is not None and partition.visible_end(READ_COMMITTED) == log.log_end_offset
        for partition in led(cluster)
        for log in (partition.log,)
    )


def led(cluster: Cluster) -> list[Partition]:
    return [
        partition
        for node in cluster.nodes().values()
        for partition in node.broker.partitions.all()
        if partition.is_led_here and partition.log is not None
    ]


def committed_in(cluster: Cluster, key: PartitionKey) -> list[tuple[int, bytes]]:
    """Offset and value of what a read_committed consumer should see, found by the end markers alone."""
    rows: list[tuple[int, bytes]] = []
    for partition in led(cluster):
        if (partition.topic, partition.index) != (key.topic, key.number) or partition.log is None:
            continue
        still_open: dict[int, list[tuple[int, bytes]]] = {}
        for data in data_of(partition.log, 0, partition.high_watermark):
            for at, header in batches(data):
                if header.is_control:
                    marker = end_marker_of(data[at : at + header.size], header)
                    ended = still_open.pop(header.producer_id, [])
                    rows += ended if marker is not None and not marker.is_aborted else []
                    continue
                found = rows_in(data[at : at + header.size])
                if header.is_transactional:
                    still_open.setdefault(header.producer_id, []).extend(found)
                else:
                    rows += found
    return sorted(rows)


def stable_ends(cluster: Cluster) -> dict[str, tuple[int, int]]:
    return {
        f"{one.topic}-{one.index}": (one.visible_end(READ_COMMITTED), one.high_watermark)
        for one in led(cluster)
    }
