"""A worker: encodes clips. What it cannot encode becomes a dead letter, with the reason.

    python examples/transcoding_queue/transcoder.py --media media --worker 1

A job that fails or hangs does not hold up those behind it. When its clip is repaired, `headrace redrive
jobs_dead --execute` sends it back to `jobs`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
from pathlib import Path

import encoder
import exactly_once
import uploads

from headrace import Message
from headrace.schemas.dead_letters import dead_letter


def encoded(message: Message, media: Path, program: str, timeout_s: float) -> exactly_once.Record:
    job = json.loads(message.value)
    clip, rendition = job["clip"], job["rendition"]
    source, size = uploads.place_of(media, clip), uploads.RENDITIONS[rendition]
    target = media / rendition / f"{clip}{encoder.SUFFIXES[program]}"
    try:
        encoder.encode(program, source, target, size, timeout_s)
    except encoder.EncoderFailed as error:
        letter = dead_letter(
            str(error),
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            timestamp_ms=message.timestamp_ms,
            key=message.key,
            value=message.value,
            headers=message.headers,
        )
        return exactly_once.Record(uploads.DEAD, letter.key, letter.value, letter.record_headers())
    data = target.read_bytes()
    result = job | {"file": f"{rendition}/{target.name}", "sha256": hashlib.sha256(data).hexdigest()}
    # the key is the clip: one collector gets all of its renditions
    return exactly_once.Record(uploads.RENDERED, clip.encode(), json.dumps(result).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description="Encodes clips.")
    parser.add_argument("--servers", default=uploads.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--media", type=Path, required=True, help="the directory of all files")
    parser.add_argument("--worker", required=True, help="a name of its own, the same after a restart")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for a job (default: 30)")
    parser.add_argument("--encoder", choices=encoder.SUFFIXES, default=encoder.installed())
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    exactly_once.work(
        chosen.servers,
        uploads.JOBS,
        "transcoders",
        f"transcoder-{chosen.worker}",
        lambda messages: [encoded(each, chosen.media, chosen.encoder, chosen.timeout) for each in messages],
        batch=3,
    )


if __name__ == "__main__":
    main()
