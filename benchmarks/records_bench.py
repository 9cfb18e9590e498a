"""What the record codec costs, beside the floor that the design sets.

    PYTHONPATH=tests python benchmarks/records_bench.py [--json FILE] [--seconds N]

Records of 100 bytes, 1,000 to a batch. Each figure is the best of several rounds, in million records per
second; header checks in microseconds.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from types import SimpleNamespace

from harness.interpreted import interpreted
from headrace.records import _codec, _columns
from headrace.records._columns import Columns
from headrace.records.batch import check_batches, read_header
from headrace.records.builder import build_batch
from headrace.records.compiled import COMPILED
from headrace.records.compression import Codec
from headrace.records.fetched import Fetched
from headrace.records.reader import read_rows

COUNT = 1_000
TIMESTAMP = 1_700_000_000_000
RECORDS = [(TIMESTAMP + index // 10, b"key-%06d" % index, b"v" * 100, ()) for index in range(COUNT)]

# DESIGN's figures, in M records/s: rows interpreted, rows compiled, columns compiled.
FLOORS = {"rows, interpreted": 0.44, "rows, compiled": 2.9, "columns, compiled": 12.0}


def best_rate(work: Callable[[], object], units: int, seconds: float) -> float:
    """Units per second in the best round: the rounds that nobody disturbed tell what the code costs."""
    rounds = 0
    best = float("inf")
    until = time.perf_counter() + seconds
    while rounds < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        rounds += 1
    return units / best


def columns(form: SimpleNamespace, records: bytes) -> None:
    form.columns.Columns().add(records, COUNT, 0, TIMESTAMP, -1, "t", 0, 0)


def measure(seconds: float) -> dict[str, float]:
    """All figures by name; M records/s unless the name says otherwise."""
    figures: dict[str, float] = {}
    modes = {"interpreted": interpreted("_codec", "_columns")}
    if COMPILED:
        modes["compiled"] = SimpleNamespace(codec=_codec, columns=_columns)
    for mode, form in modes.items():
        for name, work in codec_work(form).items():
            figures[f"{name}, {mode}"] = best_rate(work, COUNT, seconds) / 1e6
    for number in Codec:
        for name, work in batch_work(number).items():
            figures[f"{name}, {number.name.lower()}"] = best_rate(work, COUNT, seconds) / 1e6
    for size, times in ((200, 2_000), (1 << 20, 20)):
        figures[f"check a batch of {size:,} bytes, µs"] = 1e6 / best_rate(
            check_work(size, times), times, seconds
        )
    return figures


def codec_work(form: SimpleNamespace) -> dict[str, Callable[[], object]]:
    codec = form.codec
    records = _codec.encode(RECORDS, TIMESTAMP)
    return {
        "rows": lambda: codec.decode_rows(records, COUNT, 0, TIMESTAMP, -1),
        "columns": lambda: columns(form, records),
        "keys": lambda: codec.decode_keys(records, COUNT, 0),
        "validate": lambda: codec.validate(records, COUNT, TIMESTAMP, True),
        "time look-up": lambda: codec.first_from(records, COUNT, 0, TIMESTAMP, TIMESTAMP + COUNT),
        "encode": lambda: codec.encode(RECORDS, TIMESTAMP),
    }


def batch_work(codec: Codec) -> dict[str, Callable[[], object]]:
    batch = build_batch(RECORDS, codec=codec)
    header = read_header(batch)
    return {
        "batch to rows": lambda: read_rows(batch, 0, header),
        "batch from records": lambda: build_batch(RECORDS, codec=codec),
        "fetched, to messages": lambda: Fetched("t", 0, batch, 0).take_messages(COUNT),
        "fetched, to columns": lambda: Fetched("t", 0, batch, 0).take_columns(Columns()),
    }


def check_work(size: int, times: int) -> Callable[[], object]:
    view = memoryview(bytearray(build_batch([(TIMESTAMP, None, b"v" * (size - 75), ())])))

    def check() -> None:
        for _ in range(times):
            check_batches(view, 1 << 21)

    return check


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each figure (0.3)")
    options = parser.parse_args()
    figures = measure(options.seconds)
    for name, figure in figures.items():
        floor = f"   floor {FLOORS[name]:5.2f}" if name in FLOORS else ""
        print(f"{name:34} {figure:9.2f}{floor}")
    if options.json:
        report = {"machine": platform.platform(), "python": platform.python_version(), "compiled": COMPILED}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report | {"figures": figures, "floors": FLOORS}, file, indent=2)


if __name__ == "__main__":
    main()
