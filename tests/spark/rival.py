"""Apache Kafka as a parameter of tests: the rival of Headrace's own run of the same test."""

from __future__ import annotations

import pytest

from harness.kafka import Kafka

KAFKA = pytest.param(Kafka, id=Kafka.name, marks=pytest.mark.on_kafka)
