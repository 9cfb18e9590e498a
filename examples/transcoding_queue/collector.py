"""Publishes the manifest of a clip when all of its renditions are there.

    python examples/transcoding_queue/collector.py

It remembers clips that are not whole. That memory is not stored: whoever gets a partition replays the
partition up to the committed offset, which is enough, as all renditions of a clip have one partition.
"""

from __future__ import annotations

import argparse
import json
import signal
from typing import Any

import exactly_once
import uploads

from headrace import Consumer, Message, RebalanceListener, TopicPartition


class Collector(RebalanceListener):
    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._clips: dict[int, dict[str, dict[str, dict[str, Any]]]] = {}  # by partition, clip, rendition

    def forget(self) -> None:
        self._clips.clear()

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._clips.clear()

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._clips.clear()

    def manifests(self, messages: list[Message]) -> list[exactly_once.Record]:
        found = []
        for message in messages:
            if message.partition not in self._clips:
                self._clips[message.partition] = self._replay(message)
            whole = self._add(self._clips[message.partition], message)
            if whole is not None:
                found.append(exactly_once.Record(uploads.MANIFESTS, message.key, json.dumps(whole).encode()))
        return found

    def _add(self, clips: dict[str, dict[str, dict[str, Any]]], message: Message) -> dict[str, Any] | None:
        """The manifest, if this was the last rendition that was missing."""
        result = json.loads(message.value)
        files = clips.setdefault(result["clip"], {})
        if result["rendition"] in files:
            return None  # a job that was redriven twice: the manifest is out, or waits for another one
        files[result["rendition"]] = {"file": result["file"], "sha256": result["sha256"]}
        if len(files) < len(uploads.RENDITIONS):
            return None
        return {"clip": result["clip"], "renditions": dict(sorted(files.items()))}

    def _replay(self, first: Message) -> dict[str, dict[str, dict[str, Any]]]:
        """All before the first message: these are decided, or they would have been read again."""
        clips: dict[str, dict[str, dict[str, Any]]] = {}
        at = TopicPartition(first.topic, first.partition)
        with Consumer(self.servers, isolation_level="read_committed") as reader:
            reader.assign({at: 0})
            while reader.position(at) < first.offset:
                for message in reader.poll(0.5):
                    if message.offset < first.offset:
                        self._add(clips, message)
        return clips


def main() -> None:
    parser = argparse.ArgumentParser(description="Publishes manifests of whole clips.")
    parser.add_argument("--servers", default=uploads.SERVERS, help="the brokers (default: %(default)s)")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    collector = Collector(chosen.servers)
    exactly_once.work(
        chosen.servers,
        uploads.RENDERED,
        "collector",
        "collector-1",
        collector.manifests,
        batch=100,
        listener=collector,
        forget=collector.forget,
    )


if __name__ == "__main__":
    main()
