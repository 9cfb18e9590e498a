"""A transaction is complete only when it has ended in every partition that it touched."""

from headrace.machines.transactions.transaction import Transaction
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes


class TransactionsEndEverywhere:
    name = "transactions_end_everywhere"

    def __init__(self) -> None:
        self._hosts: dict[int, Host] = {}
        self._newest: dict[int, int] = {}  # coordinator's partition → the newest epoch of a shard
        # by coordinator's partition, its epoch and transactional id
        self._ending: dict[tuple[int, int, str], Transaction] = {}

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        self._hosts[host.id] = host
        for shard in node.broker.transactions.loaded_shards():
            index, epoch = shard.partition.index, shard.epoch
            newest = self._newest[index] = max(epoch, self._newest.get(index, 0))
            if epoch < newest:
                continue  # deposed, and does not know it: the producer may have begun again with the next one
            for transaction in shard.machine.transactions:
                key = (index, epoch, transaction.transactional_id)
                if transaction.is_ending:
                    self._ending[key] = transaction
                elif key in self._ending:
                    ended = self._ending.pop(key)
                    if transaction.has_ended and transaction.previous_producer_id == ended.producer_id:
                        self._check(ended)

    def _check(self, ended: Transaction) -> None:
        for topic, index in sorted(ended.partitions):
            partition = self._leading(topic, index)
            state = partition.log.partition_producers.state if partition and partition.log else None
            if state is not None and ended.producer_id in state.open:
                raise Violation(
                    f"the transaction of {ended.transactional_id} is complete, but producer "
                    f"{ended.producer_id} has it open in {topic}-{index}"
                )

    def _leading(self, topic: str, index: int) -> Partition | None:
        """The partition on the node that leads it in the newest epoch that any node knows. A node that leads
        it in an earlier one is deposed, and does not know it.
        """
        replicas = [
            partition
            for host in self._hosts.values()
            if host.node is not None
            and (partition := host.node.broker.partitions.at(topic, index)) is not None
        ]
        newest = max(replicas, key=lambda one: (one.leader_epoch, one.leader is not None), default=None)
        return newest if newest is not None and newest.leader is not None else None
