"""Programs that use our own client: its machines as they are, carried by a shell over simulated wires.

Nothing here decides what a producer or a consumer does; that is what is on trial. A program is what a user
would write around it, and it dies as users' programs do.
"""
