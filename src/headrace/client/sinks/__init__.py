"""Attempts to write a part of a sink's batch: transactions that somebody else ends, all of them at once."""
