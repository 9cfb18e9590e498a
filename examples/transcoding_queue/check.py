"""Compares manifests and files with the truth: one manifest for each clip, and its files are what it says.

    python examples/transcoding_queue/check.py --media media --clips 500
    python examples/transcoding_queue/check.py --media media --clips 500 --repaired --pipeline

Without --repaired, a clip with a defect must have no manifest, and a dead letter for each of its jobs. A
whole clip may have dead letters, too, instead of a manifest: on a busy computer the encoder may have been too
slow.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import uploads

from headrace import Consumer

PROJECT = Path(__file__).parent


def published(servers: str, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with Consumer(servers, isolation_level="read_committed") as consumer:
        places = [(topic, number) for number in range(uploads.PARTITIONS)]
        consumer.assign(dict.fromkeys(places, 0))
        ends = consumer.end_offsets(places)
        while any(consumer.position(at) < end for at, end in ends.items()):
            found += [json.loads(message.value) for message in consumer.poll(0.5)]
    return found


def wrong_files(media: Path, manifest: dict[str, Any]) -> list[str]:
    renditions = manifest["renditions"]
    found = []
    if set(renditions) != set(uploads.RENDITIONS):
        found.append(f"{manifest['clip']} has the renditions {sorted(renditions)}")
    for rendition in renditions.values():
        path = media / rendition["file"]
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != rendition["sha256"]:
            found.append(f"{path} is not the file of the manifest")
    return found


def problems(servers: str, media: Path, count: int, seed: int, *, repaired: bool) -> list[str]:
    manifests = published(servers, uploads.MANIFESTS)
    times = Counter(manifest["clip"] for manifest in manifests)
    failed = {(job["clip"], job["rendition"]) for job in published(servers, uploads.DEAD)}
    dead = Counter(clip for clip, _ in failed)
    found = []
    for clip in uploads.clips(count, seed):
        is_whole = repaired or clip.defect is None
        due = 1 if repaired or (is_whole and not dead[clip.clip]) else 0
        if times[clip.clip] != due:
            found.append(f"{clip.clip} has {times[clip.clip]} manifests, not {due}")
        if not is_whole and dead[clip.clip] != len(uploads.RENDITIONS):
            found.append(f"{clip.clip} is {clip.defect}, and has {dead[clip.clip]} dead letters")
    for manifest in manifests:
        found += wrong_files(media, manifest)
    print(f"{len(manifests)} manifests of {count} clips, {len(failed)} jobs with dead letters", flush=True)
    return found


def wrong_views(servers: str) -> list[str]:
    """The pipeline's manifests must be those of the collector, and clips without one must have failed."""
    from headrace.pipelines import read_table  # needs the extras `spark` and `lake`

    right = {
        manifest["clip"]: {name: each["sha256"] for name, each in manifest["renditions"].items()}
        for manifest in published(servers, uploads.MANIFESTS)
    }
    rows = read_table(PROJECT, "manifests").to_pylist()
    given = {row["clip"]: dict(row["renditions"]) for row in rows}
    states = {row["clip"]: row["state"] for row in read_table(PROJECT, "clips").to_pylist()}
    print(", ".join(f"{number} × {state}" for state, number in Counter(states.values()).items()), flush=True)
    found = [f"{clip}: {given.get(clip)}" for clip in right | given if right.get(clip) != given.get(clip)]
    return found + [
        f"{clip} is {state}"
        for clip, state in states.items()
        if state != ("whole" if clip in right else "failed")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares manifests and files with the truth.")
    parser.add_argument("--servers", default=uploads.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--media", type=Path, required=True, help="the directory of all files")
    parser.add_argument("--clips", type=int, default=500, help="as for uploads.py")
    parser.add_argument("--seed", type=int, default=1, help="as for uploads.py")
    parser.add_argument("--repaired", action="store_true", help="all clips have been repaired and redriven")
    parser.add_argument("--pipeline", action="store_true", help="also check the views of the pipeline")
    chosen = parser.parse_args()
    found = problems(chosen.servers, chosen.media, chosen.clips, chosen.seed, repaired=chosen.repaired)
    if chosen.pipeline:
        found += wrong_views(chosen.servers)
    for problem in found:
        print(f"wrong: {problem}")
    sys.exit("not as it should be" if found else None)


if __name__ == "__main__":
    main()
