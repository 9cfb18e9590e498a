"""Checks of topic names."""

import re
from collections.abc import Mapping

from headrace.base.limits import TOPIC_NAME_CHARACTERS_MAX
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.image import ClusterImage, collision_name, has_colliding_characters
from headrace.protocol.errors import ErrorCode

LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
METADATA_TOPIC = "__cluster_metadata"


def check_topic_name(name: str) -> None:
    """Refuses a name that could not be a directory's, or that Kafka would refuse."""
    fault = name_fault(name)
    if fault is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")


def name_fault(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_CHARACTERS_MAX:
        shown = name[:TOPIC_NAME_CHARACTERS_MAX] + "…"
        return f"the length of '{shown}' is longer than the max allowed length {TOPIC_NAME_CHARACTERS_MAX}"
    if not LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_collision(image: ClusterImage, name: str, also: Mapping[str, str]) -> None:
    """Refuses a name that differs from another only in '.' against '_': metrics would mix the two up.

    `also` are names that are about to be, by their `collision_name`.
    """
    if not has_colliding_characters(name):
        return
    others = set(image.colliding_names.get(collision_name(name), ()))
    if collision_name(name) in also:
        others.add(also[collision_name(name)])
    others.discard(name)
    if others:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {', '.join(sorted(others))}",
        )
