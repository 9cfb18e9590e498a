"""One node under a seeded clock, network and disk, with clients that use it and judges that watch.

A seed decides everything: when messages arrive, when jobs run, what breaks and when. The same seed gives the
same trace.
"""
