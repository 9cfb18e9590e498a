"""What shell completion offers."""

from __future__ import annotations

from click.shell_completion import get_completion_class

from headrace.cli.main import headrace


def completed(*words: str) -> list[str]:
    """What the shell is offered for the last of the words."""
    kind = get_completion_class("bash")
    assert kind is not None
    *before, begun = words
    return [item.value for item in kind(headrace, {}, "headrace", "_X").get_completions(before, begun)]
