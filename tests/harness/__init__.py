"""Brokers as processes, for tests and benchmarks: Headrace and, as the oracle, Apache Kafka 4.3.1."""
