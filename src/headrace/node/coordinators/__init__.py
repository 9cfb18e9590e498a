"""Coordinators of groups, transactions and sinks: their shards, loading, and end markers."""
