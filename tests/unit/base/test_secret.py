"""A secret shows itself nowhere, and is still one where it is needed."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle  # noqa: TID251  # of our own value: Spark does it
import traceback

import pytest

from headrace.base.secret import HIDDEN, Secret, revealed

PLANTED = "planted-s3cret"


@dataclasses.dataclass
class Login:
    user: str
    password: Secret


def test_it_is_hidden_wherever_it_is_written(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(PLANTED)
    login = Login("ada", secret)
    logging.getLogger("test").warning("%s %r %s", secret, login, {"password": secret})
    texts = [
        str(secret),
        repr(secret),
        f"{secret} {secret!r} {secret:>30}",
        "%s" % secret,  # noqa: UP031
        str([secret]),
        repr({secret: secret}),
        repr(login),
        str(dataclasses.asdict(login)),
        json.dumps({"password": secret}, default=str),
        caplog.text,
    ]
    for text in texts:
        assert PLANTED not in text
        assert HIDDEN in text


def test_json_does_not_write_it_at_all() -> None:
    with pytest.raises(TypeError):
        json.dumps({"password": Secret(PLANTED)})


def test_a_trace_of_an_error_does_not_have_it() -> None:
    with pytest.raises(ValueError) as raised:
        raise ValueError(f"wrong: {Secret(PLANTED)}", Secret(PLANTED))
    trace = "".join(traceback.format_exception(raised.value))
    assert PLANTED not in trace
    assert HIDDEN in trace


def test_it_is_there_where_it_is_needed() -> None:
    secret = Secret(PLANTED)
    assert secret.reveal() == PLANTED
    assert revealed(secret) == revealed(PLANTED) == PLANTED
    assert Secret(secret).reveal() == PLANTED
    assert copy.deepcopy(secret) == secret
    assert pickle.loads(pickle.dumps(secret)).reveal() == PLANTED
    assert secret == Secret(PLANTED) != Secret("another")
    assert secret != PLANTED
    assert secret
    assert not Secret("")
