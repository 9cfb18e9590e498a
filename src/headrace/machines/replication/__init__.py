"""Replication of one partition: the in-sync replicas and the high watermark."""
