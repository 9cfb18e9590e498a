"""Reading partitions, as pure machines; `ConsumerSession` joins them and the group into one.

A partition's `Position` is found (`positioning`, `validation`), then read ahead of the application
(`fetching`, `fetch_session`), and what was fetched waits in the `backlog` until it is taken. Positions move
when records are handed out, and only then; an answer to a question that is no longer ours moves nothing.
"""
