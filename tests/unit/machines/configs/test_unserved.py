"""Settings that promise what is not there: refused, and the reference says so."""

from __future__ import annotations

import pytest

from headrace.machines.configs.definition import KEPT_DOC, broker_config_keys
from headrace.machines.configs.unserved import PROMISES, check_promise

KEYS = broker_config_keys()


@pytest.mark.parametrize("name", sorted(PROMISES))
def test_a_default_promises_nothing_and_the_reference_says_what_is_refused(name: str) -> None:
    assert "efused" in KEYS[name].doc
    assert KEYS[name].doc != KEPT_DOC
    check_promise(name, KEYS[name].default or "")


def test_no_other_key_without_effect_is_about_who_may_do_what() -> None:
    """A key that is added to the table of those without effect must be looked at here."""
    suspicious = ("authorizer", "acl", "policy.class", "client.auth", "principal.builder", "super.user")
    kept = {key.name for key in KEYS.values() if key.doc == KEPT_DOC}
    assert {name for name in kept if any(word in name for word in suspicious)} == set()
