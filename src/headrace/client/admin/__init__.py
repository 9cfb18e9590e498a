"""Administration: topics, configs, groups, offsets, transactions, brokers, rights and users.

Every operation is written once, as a generator that yields questions (`asking`); `session` runs them for the
blocking and the asyncio shell alike.
"""
