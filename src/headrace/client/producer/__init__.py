"""The producer: batches of records, and the requests that deliver them.

The way of a record: `methods.py` (send), `_appender.py`, `_accumulator.py` (a partition is chosen, batches
are opened and closed), `_batch.py` (bytes), `sender.py` (which batches leave now, retries),
`produce_requests.py` (Produce requests, and what a response means for a batch), and the `Delivery` of
`_batch.py`.

Everything but the threads and the event loop is here and pure: the time is an argument, requests come out of
`Sender.requests(now)`, and each response is handed back with its ticket. Modules that begin with `_` are
compiled.
"""
