"""`python -m benchmarks`: runs the rows asked for, prints the table, writes every repeat to .cache/bench."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from benchmarks import (
    bystander_bench,
    clusters,
    coordination,
    earlier,
    fetching,
    growth,
    hostile_logins,
    lag,
    login_timing,
    python_clients,
    quota_rates,
    report,
    scoreboard,
    security_costs,
    spark_reading,
    spark_sink,
    spark_workers,
    spark_writing,
    starting,
    testing_bench,
    throughput,
)
from benchmarks.bench import KINDS, Bench
from harness.broker import CACHE, ROOT

TOGETHER = ("T1", "T2", "T3", "T4", "T5", "T9")  # measured on one pair of warm brokers
ALONE = {
    "T6": clusters.replicated,
    "T7": clusters.failover,
    "T8": starting.first_write,
    "T10": starting.restart,
    "T12": python_clients.run,
    "T13": spark_reading.run,
    "T14": spark_writing.run,
    "formats": spark_sink.formats,
    "triggers": spark_sink.triggers,
    "workers": spark_workers.run,
    "T16": testing_bench.run,
    "T17": growth.run,
    "lag": lag.run,
    "hostile": bystander_bench.run,
    "quotas": quota_rates.run,
    "sec": security_costs.run,
    "logins": hostile_logins.run,
    "users": login_timing.run,
    "G4": coordination.load,
}
ROWS = (*TOGETHER, *ALONE, *sorted(fetching.ROWS), *sorted(coordination.ROWS))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(ROWS), help=f"rows, of {','.join(ROWS)}")
    parser.add_argument("--repeats", type=int, default=3, help="turns that each broker takes")
    parser.add_argument("--no-kafka", action="store_true", help="Headrace alone")
    parser.add_argument("--no-headrace", action="store_true", help="Kafka alone")
    parser.add_argument(
        "--against", metavar="COMMIT", help="an earlier Headrace instead of Kafka, pair by pair"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the amounts of data, for a quick look")
    parser.add_argument("--json", type=Path, help="where to write; default .cache/bench/<time>.json")
    arguments = parser.parse_args()
    unknown = set(arguments.only.split(",")) - set(ROWS)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return arguments


def main() -> None:
    arguments = parsed()
    rows = set(arguments.only.split(","))
    kinds = {
        kind: KINDS[kind]
        for kind, left_out in (("headrace", arguments.no_headrace), ("kafka", arguments.no_kafka))
        if not left_out
    }
    if arguments.against:
        kinds = {"headrace": KINDS["headrace"], earlier.NAME: earlier.broker(arguments.against)}
    bench = Bench(kinds, arguments.repeats, arguments.scale)
    if rows.intersection(TOGETHER):
        throughput.run(bench, rows)
    for row, run in ALONE.items():
        if row in rows:
            run(bench)
    if rows & fetching.ROWS:
        fetching.run(bench, rows)
    if rows & coordination.ROWS:
        coordination.run(bench, rows)
    bench.measures.sort(key=lambda measure: ROWS.index(measure.row))
    if arguments.against:
        print(report.pairs(bench.measures, "headrace", earlier.NAME))
    else:
        print(report.table(bench.measures))
    path = arguments.json or CACHE / "bench" / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    settings = {
        "rows": sorted(rows),
        "repeats": bench.repeats,
        "scale": bench.scale,
        "brokers": list(kinds),
        "against": arguments.against,
    }
    report.write(path, bench.measures, settings)
    print(f"\nevery repeat: {path}")
    if bench.scale >= 1 and {"headrace", "kafka"} <= set(kinds):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        scoreboard.update(
            ROOT / "docs", bench.measures, at=at, commit=report.commit(), load=os.getloadavg()[0]
        )
        print(f"scoreboard: {ROOT / 'docs' / scoreboard.PAGE}")


if __name__ == "__main__":
    main()
