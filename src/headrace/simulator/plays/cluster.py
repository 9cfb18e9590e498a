"""Play `cluster`: producers and readers that use our own client, on topics with several replicas.

Processes die, hosts lose their memory, links fail in every way, and clocks jump. When everything has healed,
every partition must have a leader and all its replicas in sync within a limited time, every record must be
reported, and everything that was acknowledged must be readable, in the same order on all replicas.
"""

from headrace.simulator.clients.cluster_admin import ClusterAdmin
from headrace.simulator.clients.creator import Creator
from headrace.simulator.clients.deleter import Deleter
from headrace.simulator.clients.mover import Mover
from headrace.simulator.clients.topics import Topic
from headrace.simulator.cluster import Cluster
from headrace.simulator.cluster_fault_profiles import ClusterProfile
from headrace.simulator.cluster_faults import ClusterFaults
from headrace.simulator.cluster_judges.replica_contents import contents_of
from headrace.simulator.history import ContentsKnown, Finished, JudgedWrong, Violation
from headrace.simulator.plays import CALM_S, HEALING_S
from headrace.simulator.programs.explorer import Explorer
from headrace.simulator.programs.sender import Sender
from headrace.simulator.programs.shell import STALL_S_MAX
from headrace.simulator.world import World

RECOVERY_S = 30.0  # from healing to a leader and full in-sync sets everywhere


class ClusterOfLogs:
    def __init__(self, world: World) -> None:
        self.nodes = world.rng.choice((1, 2, 3, 3, 3, 4, 5))
        self.settings: dict[str, str] = {}

    def live(self, cluster: Cluster, profile: ClusterProfile, seconds: float) -> None:
        world, rng = cluster.world, cluster.world.rng
        configs = {"retention.ms": "-1", "internal.segment.bytes": "8000", "max.message.bytes": "2000"}
        if profile.lost_file:  # so that logs have several segments to lose
            configs["internal.segment.bytes"] = "2100"
        strict = {"min.insync.replicas": str(profile.min_in_sync)} if profile.min_in_sync else {}
        topics = [
            Topic("notes", rng.randint(1, 3), configs | strict),
            Topic("flushed", rng.randint(1, 2), configs | {"flush.messages": "1"}),
        ]
        creator = Creator(cluster, "creator", topics, min(3, self.nodes))
        senders = [
            Sender(cluster, "writer", topics[0], acks=-1, is_idempotent=True),
            Sender(cluster, "other", topics[0], acks=-1, is_idempotent=True),
            Sender(cluster, "careful", topics[1], acks=-1, is_idempotent=True),
        ]
        explorers = [
            Explorer(cluster, f"explorer{n}", topic, is_committed=bool(n)) for n, topic in enumerate(topics)
        ]
        deleters = []
        if profile.has_deletions:
            pruned = Topic("pruned", 1, configs)
            topics.append(pruned)
            senders.append(Sender(cluster, "filler", pruned, acks=-1, is_idempotent=True))
            explorers.append(Explorer(cluster, "pruner", pruned, is_committed=True))
            deleters.append(Deleter(cluster, "deleter", pruned))
        if profile.has_large:
            large = {"max.message.bytes": "4000000", "internal.segment.bytes": "6000000"}
            topics.append(Topic("large", 1, configs | large, batch_bytes_max=4_000_000))
            senders.append(Sender(cluster, "heavy", topics[-1], acks=-1, is_idempotent=True, is_large=True))
            explorers.append(Explorer(cluster, "carrier", topics[-1], is_committed=True))
        admins = admins_of(cluster, profile)
        movers = [Mover(cluster, "mover", topics, cluster.directories)] if profile.has_moves else []
        scripts: list[Deleter | ClusterAdmin | Mover] = [*deleters, *admins, *movers]
        programs = [*senders, *explorers]

        def are_in_sync() -> bool:
            return in_sync(cluster, topics)

        def may_lose() -> bool:
            """With fewer than three nodes a record is acknowledged when one of them has it in memory, unless
            it is flushed before.
            """
            return profile.flushes_each or (self.nodes >= 3 and are_in_sync() and cluster.are_recovered)

        faults = ClusterFaults(cluster, programs, profile, may_lose)
        cluster.start()
        creator.begin()
        if not cluster.when(lambda: creator.has_created, HEALING_S):
            raise stuck(cluster, "topics are not created")
        if not cluster.when(are_in_sync, HEALING_S):
            raise stuck(cluster, f"replicas are not in sync: {described(cluster, topics)}")
        for program in programs:
            program.begin()
        for script in scripts:
            script.begin()
        faults.begin()
        world.run(world.mono + seconds)

        faults.stop()
        for script in scripts:
            script.is_stopping = True
        for program in programs:
            program.is_careful = True
        for sender in senders:
            sender.is_stopping = True
        for explorer in explorers:
            explorer.rest()
        world.run(world.mono + STALL_S_MAX + CALM_S)
        if not cluster.when(are_in_sync, RECOVERY_S):
            raise stuck(cluster, f"replicas are not in sync: {described(cluster, topics)}", RECOVERY_S)
        if not cluster.when(lambda: all(one.is_over for one in scripts), HEALING_S):
            raise stuck(cluster, "admin clients are not served")
        if not cluster.when(lambda: all(one.is_idle for one in senders), HEALING_S):
            raise stuck(cluster, "producers do not tell what became of their records")
        world.run(world.mono + CALM_S)  # the high watermark reaches all followers
        check_metadata(cluster, admins)
        finished = Finished({}, {}, {})
        for key in (key for topic in topics for key in topic.keys):
            try:
                finished.starts[key], finished.contents[key] = contents_of(cluster, key)
            except Violation as violation:
                event = "all replicas are in sync"
                raise JudgedWrong("replicas_agree", str(violation), cluster.history.count, event) from None
            rows = finished.contents[key]
            finished.ends[key] = rows[-1][0] + 1 if rows else finished.starts[key]
        cluster.history.add(finished)
        ends = finished.ends
        if not cluster.when(lambda: all(one.has_read(ends) for one in explorers), HEALING_S):
            raise stuck(cluster, "not everything is shown to those who read")
        cluster.history.add(ContentsKnown(finished.contents, {}))


def admins_of(cluster: Cluster, profile: ClusterProfile) -> list[ClusterAdmin]:
    return [ClusterAdmin(cluster, f"admin{n}") for n in range(2 * profile.has_admin)]


def check_metadata(cluster: Cluster, admins: list[ClusterAdmin]) -> None:
    """All nodes have what the admin clients were told, and serve it."""
    try:
        for node in cluster.nodes().values():
            for admin in admins:
                admin.check(node.controller.metadata.image)
    except Violation as violation:
        raise JudgedWrong(
            "admin_is_told_the_truth", str(violation), cluster.history.count, "the end"
        ) from None

    def are_well() -> bool:
        return not admins or all(
            partition.leader >= 0 and set(partition.isr) == set(partition.replicas)
            for node in cluster.nodes().values()
            for topic in node.controller.metadata.image.topics.values()
            for partition in topic.partitions.values()
        )

    if not cluster.when(are_well, RECOVERY_S):
        raise stuck(cluster, "replicas of topics that were created meanwhile are not in sync", RECOVERY_S)


def in_sync(cluster: Cluster, topics: list[Topic]) -> bool:
    """Whether all nodes run and agree that each partition has a leader and all its replicas in sync. A node
    that was just started does not know yet what the others think of it.
    """
    nodes = cluster.nodes()
    if len(nodes) < cluster.brokers or not all(node.is_ready for node in nodes.values()):
        return False
    for node in nodes.values():
        image = node.controller.metadata.image
        for topic in topics:
            state = image.topics.get(topic.name)
            if state is None or len(state.partitions) < topic.partitions:
                return False
            for partition in state.partitions.values():
                if partition.leader < 0 or set(partition.isr) != set(partition.replicas):
                    return False
    return True


def described(cluster: Cluster, topics: list[Topic]) -> str:
    """What each node that runs believes."""
    lines = []
    for number, node in cluster.nodes().items():
        image = node.controller.metadata.image
        for topic in topics:
            state = image.topics.get(topic.name)
            for index, one in state.partitions.items() if state is not None else ():
                lines.append(f"node {number}: {topic.name}-{index} leader {one.leader} isr {one.isr}")
    return "; ".join(lines) or "no node runs"


def stuck(cluster: Cluster, what: str, seconds: float = HEALING_S) -> JudgedWrong:
    """The objection when something does not happen though all has healed."""
    down = [number for number, host in cluster.hosts.items() if host.node is None]
    reports = {number: host.reports[-2:] for number, host in cluster.hosts.items()}
    sentence = f"{seconds:.0f} s after all has healed {what}; down: {down}; last reports: {reports}"
    return JudgedWrong("progress_after_healing", sentence, cluster.history.count, "nothing happens")
