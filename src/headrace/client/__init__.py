"""Producer, Consumer and Admin for any Kafka broker: a pure core, in two forms.

Pure (bytes and time in, requests out): the sessions of `producer/`, `consumer/`, `membership/` (groups) and
`admin/`, the metadata cache, and the connections of `network/`. `threads/` and `aio/` drive them with a
thread or on an event loop. The public methods are written once, for both (`steps.py`).
"""
