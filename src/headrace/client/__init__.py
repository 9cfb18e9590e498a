"""Producer, Consumer and Admin for any Kafka broker: a pure core, and a thin blocking shell around it.

Pure (bytes and time in, decisions out): `connection`, `attempts`, `cluster`, `partitioner`, `batching`,
`sender`, `fetcher`, and the packages `membership` (groups) and `producing` (batches, retries, transactions).
The shell, which owns the sockets and asks the clock: `network`, `client`, `admin`,
`producer`, `consumer`.
"""
