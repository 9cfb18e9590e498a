"""Headrace beside Apache Kafka 4.3.1: the same generators, settings and machine, in turns."""
