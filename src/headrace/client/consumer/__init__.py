"""Consumer: pure machines that read partitions; `ConsumerSession` joins them with the group.

The position of a partition is found and validated (`offset_reset`), then the `fetcher` reads ahead of the
application, and what it fetched waits in the `fetch_buffer`. A position moves only when records are handed
out; an answer to a request that is no longer current moves nothing.
"""
