"""Settings of the transaction coordinator: Kafka's keys and defaults."""

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionSettings:
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    # The finalized feature transaction.version: how the coordinator itself ends a transaction. What a client
    # speaks is told by the version of its requests.
    transaction_version: int = 2
