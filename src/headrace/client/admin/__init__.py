"""Admin client: topics, configs, groups, offsets, transactions, brokers, access control and users.

Every operation is written once, as a generator that yields requests (`operation`); `session` runs them for
the blocking and for the asyncio client.
"""
