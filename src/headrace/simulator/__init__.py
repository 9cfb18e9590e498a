"""Simulator: a node or a cluster with a seeded clock, network and disk, its clients, and their judges.

A seed decides everything: when messages arrive, when jobs run, what breaks and when. The same seed gives the
same trace.
"""
