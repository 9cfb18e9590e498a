"""Replication of one partition: who is in sync, and up to where its records are committed."""
