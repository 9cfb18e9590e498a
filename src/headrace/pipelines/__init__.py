"""Declared pipelines: expectations and steps for the files of `pyspark.pipelines`, and their runner.

    from pyspark import pipelines as dp
    from headrace.pipelines import expect_or_drop, parse

    @dp.append_flow(target="clean")
    @expect_or_drop("has_ad", "ad IS NOT NULL")
    def clean():
        return parse(spark.readStream.format("headrace").load("clicks"), "click string, ad string")

The same files run with `spark-pipelines run` and with `headrace pipeline run`. A pipeline passes `project` →
`definitions` → `graph` → `running`. What does not import pyspark: `project`, `graph`, `plans`, `sql_files`,
`guarantees`, `explaining`, `expectations`, `cases`, `run_state`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.pipelines.expectations import expect, expect_or_dead, expect_or_drop, expect_or_fail
    from headrace.pipelines.reading import read_table
    from headrace.pipelines.steps import deduplicate, enrich, parse, sessionize

_HOMES = {
    "deduplicate": "steps",
    "enrich": "steps",
    "expect": "expectations",
    "expect_or_dead": "expectations",
    "expect_or_drop": "expectations",
    "expect_or_fail": "expectations",
    "parse": "steps",
    "read_table": "reading",
    "sessionize": "steps",
}

__all__ = [
    "deduplicate",
    "enrich",
    "expect",
    "expect_or_dead",
    "expect_or_drop",
    "expect_or_fail",
    "parse",
    "read_table",
    "sessionize",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
