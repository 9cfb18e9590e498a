"""Both shells have every operation, under the same name and with the same arguments."""

from __future__ import annotations

import inspect

from headrace.aio import Admin as AsyncAdmin
from headrace.client.admin.topics import CreatedTopic, create_topic
from headrace.client.threads.admin import Admin


def methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(made)
        for name, made in vars(kind).items()
        if not name.startswith("_") and name not in ("within", "close")
    }


def test_the_shells_agree() -> None:
    assert methods(Admin) == methods(AsyncAdmin)
    assert len(methods(Admin)) > 50
    for name in methods(Admin):
        blocking, awaited = getattr(Admin, name).__doc__, getattr(AsyncAdmin, name).__doc__
        assert blocking.partition(">>>")[0] == awaited.partition(">>>")[0]
        assert "await admin." in awaited
        assert inspect.iscoroutinefunction(getattr(AsyncAdmin, name))


def test_a_method_is_shown_as_what_it_is() -> None:
    shown, written = inspect.signature(Admin.create_topic), inspect.signature(create_topic)
    assert list(shown.parameters) == ["self", *written.parameters]
    assert shown.return_annotation is CreatedTopic
    assert (Admin.create_topic.__name__, Admin.create_topic.__qualname__) == (
        "create_topic",
        "Admin.create_topic",
    )
