"""The producer's part of the client, as pure machines: what leaves when, and what an answer means.

`Sending` joins them: records wait in the accumulator, `Sequences` keep their order and their uniqueness,
`TransactionSession` makes them count together. Requests are taken by `requests(now)`, each answer is handed
back by its ticket, and what became of records is told by the batches they travelled in.
"""
