"""PLAIN: which messages are read, and which passwords are right."""

from __future__ import annotations

import pytest

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.plain import (
    MESSAGE_BYTES_MAX,
    PlainLogin,
    check_password,
    check_scram_password,
    passwords_from_options,
    read_plain,
)
from headrace.machines.security.scram import (
    SHA_256,
    SHA_512,
    Mechanism,
    credential_from_password,
    salt_password,
)

SECRET = b"secret"


class TestMessage:
    @pytest.mark.parametrize("message", [b"\0ada\0engine", b"ada\0ada\0engine"])
    def test_with_and_without_an_authorization_id(self, message: bytes) -> None:
        assert read_plain(message) == PlainLogin("ada", "engine")

    def test_text_of_all_kinds(self) -> None:
        assert read_plain("\0ädä, =2C\0pass wörd".encode()) == PlainLogin("ädä, =2C", "pass wörd")

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"ada",
            b"ada\0engine",
            b"\0\0engine",
            b"\0ada\0",
            b"\0ada\0engine\0",
            b"\0ada\0eng\0ine",
            b"\0\xff\0engine",
            b"admin\0ada\0engine",
            b"Ada\0ada\0engine",
            b"\0ada\0" + b"x" * MESSAGE_BYTES_MAX,
        ],
    )
    def test_refusals(self, message: bytes) -> None:
        with pytest.raises(LoginRefused) as raised:
            read_plain(message)
        assert "engine" not in str(raised.value)

    def test_the_password_is_not_printed(self) -> None:
        assert "engine" not in repr(PlainLogin("ada", "engine"))


class TestPasswords:
    PASSWORDS = {"ada": "engine", "bob": ""}

    def test_the_options_of_a_login_module(self) -> None:
        options = {"username": "broker", "password": "x", "user_ada": "engine", "user_a_b": "c", "user_": "d"}
        assert passwords_from_options(options) == {"ada": "engine", "a_b": "c"}

    def test_the_right_one(self) -> None:
        check_password(PlainLogin("ada", "engine"), self.PASSWORDS, SECRET)

    @pytest.mark.parametrize(
        ("user", "password"),
        [
            ("ada", "engin"),
            ("ada", "engine "),
            ("Ada", "engine"),
            ("carol", "engine"),
            ("bob", "x"),
            ("bob", ""),
        ],
    )
    def test_wrong_ones(self, user: str, password: str) -> None:
        """A user whose password is empty cannot log in."""
        with pytest.raises(LoginRefused):
            check_password(PlainLogin(user, password), self.PASSWORDS, SECRET)


class TestScramCredentials:
    @pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
    def test_the_right_password_and_others(self, mechanism: Mechanism) -> None:
        credential = credential_from_password(mechanism, "engine", b"salt")
        check_scram_password(PlainLogin("ada", "engine"), mechanism, credential, SECRET)
        with pytest.raises(LoginRefused):
            check_scram_password(PlainLogin("ada", "motor"), mechanism, credential, SECRET)

    def test_a_user_that_does_not_exist_costs_as_much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As many iterations as for others."""
        from headrace.machines.security import plain

        spent = []

        def counted(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
            spent.append(iterations)
            return salt_password(mechanism, password, salt, iterations)

        monkeypatch.setattr(plain, "salt_password", counted)
        like = credential_from_password(SHA_256, "engine", b"salt", 8192)
        for credential in (like, None):
            with pytest.raises(LoginRefused):
                check_scram_password(PlainLogin("x", "y"), SHA_256, credential, SECRET, like)
        assert spent == [8192, 8192]

    def test_even_the_password_of_the_decoy_is_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from headrace.machines.security import plain

        found_out = credential_from_password(SHA_256, "engine", b"salt")
        monkeypatch.setattr(plain, "decoy_credential", lambda *_: found_out)
        with pytest.raises(LoginRefused, match="no such user"):
            check_scram_password(PlainLogin("x", "engine"), SHA_256, None, SECRET)
