"""Coordinators on this node: machines that live on a partition, their loading, and what they ask for."""
