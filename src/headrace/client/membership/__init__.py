"""Membership in a consumer group: pure machines for both protocols; `Group` joins them.

`requests(now)` gives what they want to send, and each answer is handed back by its ticket. Events for the
application come out in order: it hears that partitions are revoked, says when it is done with them, and only
then does the member give them up.
"""
