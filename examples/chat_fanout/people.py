"""People who chat: a seeded generator of messages in 200 chats and under a live video, and what must be seen.

    python examples/chat_fanout/people.py --messages 20000

A chat is the key of its messages, so all of them are in one partition, in order. Some people use words that
the moderator hides, and one of them is muted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
from collections.abc import Iterator
from typing import Any

from headrace import JSON, Admin, Producer

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
MESSAGES, MODERATED = "messages", "moderated"
PARTITIONS = 6
CHATS = [f"chat-{number:03}" for number in range(200)]
LIVE = "live-video"  # as many comments as in half of all chats together
START_MS = 1_767_225_600_000  # 2026-01-01
WORDS = ("the", "log", "is", "full", "of", "rain", "and", "mild", "news", "today", "darn")
RUDE = "darn"
MUTED = "person-13"


def messages(count: int, seed: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(seed)
    now_ms = START_MS
    for number in range(count):
        now_ms += rng.randrange(0, 20)
        yield {
            "chat": LIVE if rng.random() < 1 / 3 else rng.choice(CHATS),
            "person": f"person-{rng.randrange(50)}",
            "number": number,
            "text": " ".join(rng.choices(WORDS, k=rng.randrange(1, 6))),
            "sent_at_ms": now_ms,
        }


def moderate(message: dict[str, Any]) -> dict[str, Any] | None:
    """None: nobody sees it."""
    if message["person"] == MUTED:
        return None
    return message | {"text": message["text"].replace(RUDE, "***")}


def following(digest: str, message: dict[str, Any]) -> str:
    """A hash of all messages until this one: equal only for the same messages in the same order."""
    seen = f"{digest} {message['number']} {message['text']}"
    return hashlib.sha256(seen.encode()).hexdigest()


def sequences(count: int, seed: int) -> dict[str, tuple[int, str]]:
    """The truth: for each chat the number of messages that are seen, and the hash of their sequence."""
    found: dict[str, tuple[int, str]] = {}
    for message in messages(count, seed):
        seen = moderate(message)
        if seen is not None:
            number, digest = found.get(seen["chat"], (0, ""))
            found[seen["chat"]] = number + 1, following(digest, seen)
    return found


def create_topics(servers: str) -> None:
    with Admin(servers) as admin:
        there = {topic.name for topic in admin.list_topics()}
        for topic in (MESSAGES, MODERATED):
            if topic not in there:
                admin.create_topic(topic, partitions=PARTITIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Publishes the messages of many chats.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=20_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other messages")
    chosen = parser.parse_args()

    create_topics(chosen.servers)
    with Producer(chosen.servers, value_serializer=JSON) as producer:
        for message in messages(chosen.messages, chosen.seed):
            producer.send(MESSAGES, message, message["chat"])
    print(f"{chosen.messages} messages", flush=True)


if __name__ == "__main__":
    main()
