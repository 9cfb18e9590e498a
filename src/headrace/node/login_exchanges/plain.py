"""PLAIN: a password, checked by a list of the settings, or in a thread by the user's SCRAM credential."""

from collections.abc import Mapping

from headrace.base.time import Now
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.plain import WRONG_PASSWORD, PlainLogin, check_password, read_plain
from headrace.machines.security.scram import SHA_256, SHA_512
from headrace.node.login_exchanges import Entered, Outcome, Then
from headrace.node.password_check import PasswordCheck
from headrace.node.password_queue import PasswordQueue, WaitingCheck
from headrace.node.scram_users import ScramUsers


class PlainExchange:
    __slots__ = ("_address", "_checks", "_passwords", "_users", "_waiting", "user")

    def __init__(
        self, passwords: Mapping[str, str], users: ScramUsers, checks: PasswordQueue, address: str
    ) -> None:
        """`passwords` by user; empty: they are checked by SCRAM credentials. `address`: the client's."""
        self._passwords = passwords
        self._users = users
        self._checks = checks
        self._address = address
        self._waiting: WaitingCheck | None = None
        self.user = ""

    def step(self, now: Now, message: bytes, then: Then, /) -> Outcome | None:
        login = read_plain(message)
        self.user = login.user
        if self._passwords:
            check_password(login, self._passwords, self._users.secret)
            return Entered(login.user)
        users, check = self._users, password_check(self._users, login)

        def checked(now: Now, refused: str | None) -> None:
            if users.credential(login.user, check.mechanism) is not check.credential:
                refused = "the password was changed meanwhile"
            refusal = LoginRefused(refused or "", told=WRONG_PASSWORD)
            then(now, Entered(login.user) if refused is None else refusal)

        self._waiting = self._checks.add(now, self._address, check, checked)
        return None

    def abandon(self) -> None:
        if self._waiting is not None:
            self._checks.drop(self._waiting)
            self._waiting = None


def password_check(users: ScramUsers, login: PlainLogin) -> PasswordCheck:
    """By the user's stronger credential; of a user that does not exist, by one like those of others."""
    known = [one for one in (SHA_512, SHA_256) if users.credential(login.user, one) is not None]
    usual = users.strongest_like(login.user)
    mechanism, like = (SHA_512, None) if usual is None else usual
    if known:
        mechanism, like = known[0], None  # it has its own form
    credential = users.credential(login.user, mechanism)
    return PasswordCheck(login, mechanism, credential, users.secret, like)
