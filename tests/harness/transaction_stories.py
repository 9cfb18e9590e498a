"""Stories about one transactional id: requests, and what was answered, line by line.

    init 5 timeout=60000          InitProducerId 5
      NONE P1/0                   the answer: P1 is the first producer id seen, 0 its epoch
    add 3 P1/0 t-0                AddPartitionsToTxn 3; `verify` asks without adding
    offsets 4 P1/0                AddOffsetsToTxn 4
    end 5 P1/0 commit             EndTxn 5; `settle` waits until the markers are written
    describe                      DescribeTransactions
    list states=Ongoing           ListTransactions
    timeout                       lets the open transaction run into its timeout
    epoch 32765                   raises the epoch to this, by as many restarts of the producer
    log                           what was written to `__transaction_state` since the last `log`

The same story is told to the machine alone and to brokers over a socket; what is written below a line was
recorded from Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from harness.stories import retold
from headrace.machines.transactions.transaction import State
from headrace.protocol.coordinator_records.transactions import TransactionLogValue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.notation import Request

UNKNOWN_ID = 987_654_321  # what stories call P?


class Coordinator(Protocol):
    """Whoever is told the story."""

    def ask(self, request: Request, version: int) -> Any: ...

    def settle(self) -> None:
        """Returns when the markers are written."""

    def run_into_timeout(self) -> None: ...

    def raise_epoch(self, transactional_id: str, epoch: int) -> None: ...

    def log(self, transactional_id: str) -> list[TransactionLogValue | None]:
        """All values of the id, in order."""


class Storyteller:
    def __init__(self, coordinator: Coordinator, transactional_id: str) -> None:
        self.coordinator = coordinator
        self.transactional_id = transactional_id
        self.names: dict[int, str] = {-1: "-"}  # producer ids by what the story calls them
        self.logged = 0

    def tell(self, story: str) -> str:
        return retold(story, lambda words: self.commands[words[0]](self, words[1:]))

    def init(self, words: list[str]) -> list[str]:
        version, options = int(words[0]), dict(word.split("=") for word in words[1:])
        request = InitProducerIdRequest(
            transactional_id=self._name(options), transaction_timeout_ms=int(options.get("timeout", 60_000))
        )
        if "held" in options:
            request.producer_id, request.producer_epoch = self._producer(options["held"])
        response = self.coordinator.ask(request, version)
        return [self._with_producer(response)]

    def add(self, words: list[str], is_verify_only: bool = False) -> list[str]:
        version, (producer_id, epoch), partitions = int(words[0]), self._producer(words[1]), words[2:]
        topics: dict[str, list[int]] = {}
        for each in partitions:
            topic, partition = each.rsplit("-", 1)
            topics.setdefault(topic, []).append(int(partition))
        asked = [AddPartitionsToTxnTopic(name=name, partitions=ids) for name, ids in topics.items()]
        if version <= 3:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=asked,
            )
            results = self.coordinator.ask(request, version).results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=is_verify_only,
                topics=asked,
            )
            response = self.coordinator.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            results = response.results_by_transaction[0].topic_results
        errors = {
            f"{topic.name}-{each.partition_index}": ErrorCode(each.partition_error_code).name
            for topic in results
            for each in topic.results_by_partition
        }
        if len(set(errors.values())) == 1:
            return [next(iter(errors.values()))]
        return [" ".join(f"{each}={errors[each]}" for each in partitions)]

    def verify(self, words: list[str]) -> list[str]:
        return self.add(words, is_verify_only=True)

    def offsets(self, words: list[str]) -> list[str]:
        producer_id, epoch = self._producer(words[1])
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id="g",
        )
        return [ErrorCode(self.coordinator.ask(request, int(words[0])).error_code).name]

    def end(self, words: list[str]) -> list[str]:
        version, (producer_id, epoch) = int(words[0]), self._producer(words[1])
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=words[2] == "commit",
        )
        response = self.coordinator.ask(request, version)
        return [self._with_producer(response) if version >= 5 else ErrorCode(response.error_code).name]

    def settle(self, words: list[str]) -> list[str]:
        self.coordinator.settle()
        return []

    def timeout(self, words: list[str]) -> list[str]:
        self.coordinator.run_into_timeout()
        return []

    def epoch(self, words: list[str]) -> list[str]:
        self.coordinator.raise_epoch(self.transactional_id, int(words[0]))
        self.logged = len(self.coordinator.log(self.transactional_id))
        return []

    def describe(self, words: list[str]) -> list[str]:
        request = DescribeTransactionsRequest(
            transactional_ids=[words[0] if words else self.transactional_id]
        )
        (found,) = self.coordinator.ask(request, 0).transaction_states
        if found.error_code:
            return [ErrorCode(found.error_code).name]
        topics = " ".join(sorted(f"{each.topic}={sorted(each.partitions)}" for each in found.topics))
        producer = f"{self.names[found.producer_id]}/{found.producer_epoch}"
        started = _started(found.transaction_start_time_ms)
        return [
            f"{found.transaction_state} {producer} {found.transaction_timeout_ms} {started} {topics}".rstrip()
        ]

    def list_transactions(self, words: list[str]) -> list[str]:
        """Of all ids, only the story's own counts: other stories may be told to the same broker."""
        options = dict(word.split("=", 1) for word in words)
        request = ListTransactionsRequest(
            state_filters=options["states"].split(",") if "states" in options else [],
            producer_id_filters=[self._producer(options["producer"] + "/0")[0]]
            if "producer" in options
            else [],
            duration_filter=int(options.get("duration", -1)),
            transactional_id_pattern=options.get("pattern"),
        )
        if request.transactional_id_pattern is not None:
            request.transactional_id_pattern = request.transactional_id_pattern.replace(
                "ID", self.transactional_id
            )
        response = self.coordinator.ask(request, 2)
        unknown = [f"unknown {name}" for name in sorted(response.unknown_state_filters)]
        own = [each for each in response.transaction_states if each.transactional_id == self.transactional_id]
        found = [f"{self.names[each.producer_id]} {each.transaction_state}" for each in own]
        return [ErrorCode(response.error_code).name, *unknown, *found]

    def log(self, words: list[str]) -> list[str]:
        values = self.coordinator.log(self.transactional_id)
        new, self.logged = values[self.logged :], len(values)
        return [self._value(value) for value in new]

    commands: dict[str, Callable[[Storyteller, list[str]], list[str]]] = {
        "init": init,
        "add": add,
        "verify": verify,
        "offsets": offsets,
        "end": end,
        "settle": settle,
        "timeout": timeout,
        "epoch": epoch,
        "describe": describe,
        "list": list_transactions,
        "log": log,
    }

    def _name(self, options: dict[str, str]) -> str:
        return options.get("id", self.transactional_id)

    def _producer(self, word: str) -> tuple[int, int]:
        name, epoch = word.split("/")
        known = {called: number for number, called in self.names.items()} | {"P?": UNKNOWN_ID}
        return known[name], int(epoch)

    def _with_producer(self, response: Any) -> str:
        error = ErrorCode(response.error_code).name
        name = self.names.setdefault(response.producer_id, f"P{len(self.names)}")
        return f"{error} {name}/{response.producer_epoch}"

    def _value(self, value: TransactionLogValue | None) -> str:
        if value is None:
            return "(tombstone)"
        partitions = value.transaction_partitions
        topics = (
            "null"
            if partitions is None
            else sorted((each.topic, sorted(each.partition_ids)) for each in partitions)
        )
        previous, following = value.previous_producer_id, value.next_producer_id
        return (
            f"{State(value.transaction_status).text} {self.names[value.producer_id]}/{value.producer_epoch}"
            f" previous={self.names[previous]} next={self.names.setdefault(following, f'P{len(self.names)}')}"
            f" timeout={value.transaction_timeout_ms} {_started(value.transaction_start_timestamp_ms)}"
            f" version={value.client_transaction_version} {topics}"
        )


def _started(start_ms: int) -> str:
    return "unstarted" if start_ms < 0 else "started"


def stories() -> dict[str, Path]:
    folder = Path(__file__).parents[1] / "unit" / "machines" / "transactions" / "stories"
    return {path.stem: path for path in sorted(folder.glob("*.txt"))}
