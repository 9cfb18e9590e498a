"""Memory of Spark's reused workers: what stays is hidden from the garbage collector."""

import gc
import sys

_uses = 0  # of this process, for tasks, plans and commits


def spare_collector() -> None:
    """Call before every task, plan and commit: makes the garbage collection that Spark makes after it cheap.

    A reused worker calls `gc.collect()` after every use. That walks over all objects of PySpark, pyarrow and
    Headrace, a hundred thousand that never go away: about 50 ms of CPU, more than a small task needs for its
    rows. At the second use all of them are loaded, and are hidden from the collector. If one of them becomes
    garbage in a cycle later, it stays; that happens once in a worker's life, so it does not grow.
    """
    global _uses
    _uses += 1
    if _uses == 2 and _is_reused_worker():
        gc.collect()
        gc.freeze()


def _is_reused_worker() -> bool:
    """Return whether this process is a child of Spark's daemon, which makes all workers that are reused."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"
