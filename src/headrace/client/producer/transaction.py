"""What sending asks of the transaction that its records belong to, whoever ends it."""

from collections.abc import Callable
from typing import Protocol

from headrace.base.dice import Dice
from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError
from headrace.client.mailbox import Mailbox
from headrace.client.producer.sequences import Sequences
from headrace.client.settings.producer import SendingSettings


class Transaction(Protocol):
    when_moved: Callable[[], object]  # called after every change of state

    @property
    def error(self) -> ClientError | None:
        """Why nothing of it will count."""
        ...

    @property
    def is_open(self) -> bool:
        """Records may be added."""
        ...

    @property
    def is_doomed(self) -> bool:
        """Records that were never sent shall not be."""
        ...

    @property
    def is_fatal(self) -> bool:
        """Not even what was sent needs an answer any more."""
        ...

    @property
    def is_ending(self) -> bool:
        """Nothing lingers."""
        ...

    @property
    def produce_version_max(self) -> int | None: ...

    def check_may_send(self) -> None:
        """Raises unless records may be added now."""
        ...

    def may_send(self, at: TopicPartition) -> bool:
        """Whether a batch for the partition may leave; if not, what it needs is seen to."""
        ...

    def batch_failed(self, error: ClientError) -> None: ...

    def advance(self, now: Instant, *, is_drained: bool) -> None:
        """Posts what is due; `is_drained`: no record of the transaction waits or is under way."""
        ...

    def deadline(self) -> Instant: ...


Transact = Callable[[SendingSettings, Sequences, Mailbox, Dice], Transaction]
