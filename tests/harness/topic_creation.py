"""Creates a topic although brokers may be killed meanwhile."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from harness.wait import WAIT_S, Patience

# The connection broke; confluent-kafka does not ask again.
BROKEN = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


def create_topic(admin: AdminClient, topic: NewTopic) -> None:
    patience = Patience(WAIT_S)
    is_repeated = False
    while True:
        created = admin.create_topics([topic], operation_timeout=WAIT_S)
        try:
            created[topic.topic].result(WAIT_S)
            return
        except KafkaException as failure:
            error = failure.args[0]
            if is_repeated and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return  # the answer to the request before was lost
            if patience.is_over or not (error.retriable() or error.code() in BROKEN):
                raise
            is_repeated = True
