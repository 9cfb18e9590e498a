"""Settings of a broker whose coordinators notice everything within seconds."""

from __future__ import annotations

from harness.members import HEARTBEAT_MS, SESSION_TIMEOUT_MS

# Rebalances begin at once; crashed members, forgotten transactions and dirty logs are noticed within seconds.
QUICK_COORDINATORS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
}
