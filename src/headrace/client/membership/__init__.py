"""The client's part in a consumer group, as pure machines; `Group` joins them into one.

What they want to send is taken by `requests(now)`, each answer is handed back by its ticket, and what the
application has to know comes out as events, in order: it hears that partitions are revoked, says when it is
done with them, and only then does the member give them up.
"""
