"""Stories: scripts whose commands are followed by the answers, indented, that a coordinator gave to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def retold(story: str, answers_to: Callable[[list[str]], Iterable[str]]) -> str:
    """The story with these answers to the words of each command in place of those that it had."""
    told = []
    for line in story.splitlines():
        if line.startswith("  "):
            continue
        told.append(line)
        if line and not line.startswith("#"):
            told += [f"  {answer}".rstrip() for answer in answers_to(line.split())]
    return "\n".join(told) + "\n"
