"""A stream under kill -9, at every point of a batch: of its driver, of its workers and of the broker.

Pass: a reader of committed records sees each record once, and a run after the last one adds nothing. Each
seed kills once at every point, with other victims at other batches; `make spark KILL_SEEDS=10` tries ten.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

import headrace
from harness.committed import committed_texts
from harness.headrace import Headrace
from spark.kill_job import POINTS

JOB = Path(__file__).with_name("kill_job.py")
SEEDS = int(os.environ.get("HEADRACE_KILL_SEEDS", "1"))
VICTIMS = ("driver", "worker", "broker")
RECORDS = 120
ROWS_PER_BATCH = 12
PARTITIONS = 2
RUNS_MAX = 30  # more than there are kills: each ends a run at most


Kill = dict[str, object]

# One of each part, at the points where most is under way.
ONE_OF_EACH: list[Kill] = [
    {"point": "between two produces", "batch": 1, "victim": "worker"},
    {"point": "before the commit record", "batch": 3, "victim": "broker"},
    {"point": "after the commit record", "batch": 5, "victim": "driver"},
]


def at_every_point(seed: int) -> list[Kill]:
    """Every point once, in a random order; over three seeds every victim at every point."""
    rng = Random(seed)
    points = list(POINTS[:-1])
    rng.shuffle(points)
    kills: list[Kill] = [
        {"point": point, "batch": number, "victim": VICTIMS[(POINTS.index(point) + seed) % len(VICTIMS)]}
        for number, point in enumerate(points)
    ]
    # something must have ended a run before there can be a restart
    kills.append({"point": POINTS[-1], "batch": 0, "victim": VICTIMS[seed % len(VICTIMS)]})
    return kills


def run_job(directory: Path, broker: Headrace) -> bool:
    """Whether it ended well; a broker that is killed meanwhile is started again."""
    with (directory / "output.txt").open("ab") as output:
        job = subprocess.Popen([sys.executable, str(JOB), str(directory)], stdout=output, stderr=output)
        try:
            while True:
                try:
                    return job.wait(timeout=0.2) == 0
                except subprocess.TimeoutExpired:
                    if not broker.is_running:
                        broker.start()
                        (directory / "broker.pids").write_text(str(broker.pid))
        finally:
            job.kill()
            job.wait()


@pytest.mark.brief
@pytest.mark.timeout(1800)
def test_each_record_once_though_each_part_is_killed(tmp_path: Path) -> None:
    copy_under_kills(ONE_OF_EACH, tmp_path)


@pytest.mark.timeout(1800)  # a JVM starts after each kill that ends a run
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_record_once_whoever_is_killed(seed: int, tmp_path: Path) -> None:
    copy_under_kills(at_every_point(seed), tmp_path)


def copy_under_kills(kills: list[Kill], tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with Headrace(tmp_path / "broker", settings) as broker:
        servers = broker.bootstrap
        (tmp_path / "broker.pids").write_text(str(broker.pid))
        plan = {
            "servers": servers,
            "source": "in",
            "target": "out",
            "rows_per_batch": ROWS_PER_BATCH,
            "kills": kills,
        }
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        expected = sorted(f"{number:04}" for number in range(RECORDS))
        with headrace.Admin(servers) as admin, headrace.Producer(servers) as producer:
            for topic in ("in", "out"):
                admin.create_topic(topic, partitions=PARTITIONS)
            for number, value in enumerate(expected):
                producer.send("in", value, partition=number % PARTITIONS)
            producer.flush()
        runs = 0
        while not run_job(tmp_path, broker):
            runs += 1
            assert runs < RUNS_MAX, (tmp_path / "output.txt").read_text()[-5000:]
        if not broker.is_running:
            broker.start()
        assert committed_texts(servers, "out") == expected
        done = len(list(tmp_path.glob("killed-*")))
        assert done == len(kills), f"{done} of {len(kills)} kills happened"
        assert run_job(tmp_path, broker)
        assert committed_texts(servers, "out") == expected, "another run wrote something"
