"""Uploaded clips: a seeded generator of small videos, some of them broken, and what must become of them.

    python examples/transcoding_queue/uploads.py --media media --clips 500
    python examples/transcoding_queue/uploads.py --media media --clips 500 --repair

Clips arrive in bursts. Some are cut off, so that no encoder can read them. Others are stuck: a named pipe
that nobody writes to, as an upload that hangs would be. --repair replaces both by the whole clips.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace import JSON, Admin, Producer

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
UPLOADS, JOBS, DEAD, RENDERED, MANIFESTS = "uploads", "jobs", "jobs_dead", "rendered", "manifests"
PARTITIONS = 4
WIDTH, HEIGHT = 64, 48
RENDITIONS = {"large": (64, 48), "medium": (32, 24), "small": (16, 12)}
BURST_MAX = 40
CUT_OFF, STUCK = "cut off", "stuck"


class Clip(NamedTuple):
    clip: str
    frames: int
    defect: str | None


def clips(count: int, seed: int) -> Iterator[Clip]:
    rng = random.Random(seed)
    for number in range(count):
        defect = rng.choices((None, CUT_OFF, STUCK), (95, 4, 1))[0]
        if number in (1, 2):
            defect = (CUT_OFF, STUCK)[number - 1]  # a small sample has one of each, too
        yield Clip(f"clip-{number:04}", rng.randrange(5, 25), defect)


def bursts(found: list[Clip], seed: int) -> Iterator[list[Clip]]:
    rng = random.Random(seed)
    while found:
        size = rng.randrange(1, BURST_MAX)
        yield found[:size]
        found = found[size:]


def video(clip: Clip) -> bytes:
    """A grey square that moves, as YUV4MPEG2, which any encoder reads and no library is needed to write."""
    colours = bytes([128]) * (WIDTH * HEIGHT // 2)
    frames = [b"YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420jpeg\n" % (WIDTH, HEIGHT)]
    for number in range(clip.frames):
        plane = bytearray([number * 8 % 256]) * (WIDTH * HEIGHT)
        left = number * 2 % (WIDTH - 8)
        for row in range(8, 16):
            plane[row * WIDTH + left : row * WIDTH + left + 8] = bytes([235]) * 8
        frames.append(b"FRAME\n" + plane + colours)
    return b"".join(frames)


def place_of(media: Path, clip: str) -> Path:
    return media / "uploads" / f"{clip}.y4m"


def store(media: Path, clip: Clip, *, repaired: bool) -> None:
    place = place_of(media, clip.clip)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if repaired or clip.defect is None:
        place.write_bytes(video(clip))
    elif clip.defect == CUT_OFF:
        place.write_bytes(video(clip)[:20])  # within the header
    else:
        os.mkfifo(place)


def create_topics(servers: str) -> None:
    with Admin(servers) as admin:
        there = {topic.name for topic in admin.list_topics()}
        for topic in (UPLOADS, JOBS, DEAD, RENDERED, MANIFESTS):
            if topic not in there:
                admin.create_topic(topic, partitions=PARTITIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes clips, and announces them in a topic.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--media", type=Path, required=True, help="the directory of all files")
    parser.add_argument("--clips", type=int, default=500, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other clips")
    parser.add_argument("--repair", action="store_true", help="replace broken clips, and announce nothing")
    chosen = parser.parse_args()

    made = list(clips(chosen.clips, chosen.seed))
    if chosen.repair:
        broken = [clip for clip in made if clip.defect is not None]
        for clip in broken:
            store(chosen.media, clip, repaired=True)
        print(f"{len(broken)} clips repaired", flush=True)
        return
    create_topics(chosen.servers)
    with Producer(chosen.servers, value_serializer=JSON) as producer:
        for burst in bursts(made, chosen.seed):
            for clip in burst:
                store(chosen.media, clip, repaired=False)
                producer.send(UPLOADS, {"clip": clip.clip}, clip.clip)
            producer.flush()
    print(f"{len(made)} clips", flush=True)


if __name__ == "__main__":
    main()
