"""Lake tables: a topic as a Delta table that proves that it has every record once.

`copying` reads a topic's ranges and writes them as Parquet files with proofs (`files`), one commit per step
(`delta`); `verifying` checks the proofs, and the topic as far as it reaches. Decisions are in machines/lake.
Needs the extra `lake`.
"""
