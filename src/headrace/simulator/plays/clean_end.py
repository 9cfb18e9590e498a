"""The end of a run of a cluster: all nodes stop at the same moment, each cleanly, and start again. About half
of their computers are rebooted meanwhile.

This shows what a fault has left waiting for ever inside a node, such as a flush that counts as under way. No
node is left to take over, and the others disappear meanwhile. After the start everything that was committed
must be there.
"""

from headrace.simulator.cluster import Cluster
from headrace.simulator.history import JudgedWrong
from headrace.storage.stop_record import CLEAN_MARKER

STOP_S_MAX = 20.0  # longer than a node waits for a controller, for commits and for what it has accepted
START_S_MAX = 30.0  # until every partition has a leader that knows what is committed
APART_S_MAX = 0.05  # between the first and the last that is told to stop

Ends = dict[tuple[str, int], int]  # the high watermarks of partitions


def stop_and_start(cluster: Cluster) -> None:
    world = cluster.world
    before = committed_ends(cluster)
    for host in cluster.hosts.values():
        host.restarts = False
        host.reboots = world.chance(0.5)
        world.after(world.between(0.0, APART_S_MAX) if world.chance(0.5) else 0.0, host.shut_down)

    def running() -> list[int]:
        return [number for number, host in cluster.hosts.items() if host.node is not None]

    if not cluster.when(lambda: not running(), STOP_S_MAX):
        raise _wrong(cluster, f"nodes {running()} run on {STOP_S_MAX:.0f} s after all were told to stop")
    for number, host in cluster.hosts.items():
        for name, disk in host.stored.items():
            if not disk.exists(CLEAN_MARKER):
                raise _wrong(cluster, f"node {number} has stopped without a clean marker in directory {name}")
    cluster.start()
    if not cluster.when(lambda: committed_ends(cluster).keys() >= before.keys(), START_S_MAX):
        lost = sorted(before.keys() - committed_ends(cluster).keys())
        raise _wrong(cluster, f"{START_S_MAX:.0f} s after all were started again nobody leads {lost}")
    after = committed_ends(cluster)
    for partition, end in before.items():
        if after[partition] < end:
            where = f"{partition[0]}-{partition[1]}"
            raise _wrong(cluster, f"{where} was committed up to {end}, and is up to {after[partition]} now")


def committed_ends(cluster: Cluster) -> Ends:
    """Of partitions whose leader knows what is committed."""
    return {
        (one.topic, one.index): one.high_watermark
        for node in cluster.nodes().values()
        if node.is_ready
        for one in node.broker.partitions.all()
        if one.leader is not None and one.log is not None and one.leader.has_reached_epoch_start
    }


def _wrong(cluster: Cluster, what: str) -> JudgedWrong:
    reports = {number: host.reports[-2:] for number, host in cluster.hosts.items()}
    sentence = f"{what}; last reports: {reports}"
    return JudgedWrong("clean_stop_of_all", sentence, cluster.history.count, "all nodes stop")
