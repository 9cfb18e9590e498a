"""Turns each upload into three jobs, one for each rendition.

python examples/transcoding_queue/planner.py
"""

from __future__ import annotations

import argparse
import json
import signal

import exactly_once
import uploads

from headrace import Message


def jobs(messages: list[Message]) -> list[exactly_once.Record]:
    found = []
    for message in messages:
        clip = json.loads(message.value)["clip"]
        for rendition in uploads.RENDITIONS:
            job = json.dumps({"clip": clip, "rendition": rendition}).encode()
            # the key is the job, not the clip: three workers may share a clip
            found.append(exactly_once.Record(uploads.JOBS, f"{clip}/{rendition}".encode(), job))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Turns uploads into jobs.")
    parser.add_argument("--servers", default=uploads.SERVERS, help="the brokers (default: %(default)s)")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    exactly_once.work(chosen.servers, uploads.UPLOADS, "planner", "planner-1", jobs, batch=100)


if __name__ == "__main__":
    main()
