"""Simulator: one node with a seeded clock, network and disk, clients that use it, and judges that check it.

A seed decides everything: when messages arrive, when jobs run, what breaks and when. The same seed gives the
same trace.
"""
