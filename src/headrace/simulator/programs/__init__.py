"""Programs that use our own client: its real sessions, driven over simulated connections.

Nothing here decides what a producer or a consumer does; that is the code under test. A program is what a user
would write around it, and it crashes as users' programs do.
"""
