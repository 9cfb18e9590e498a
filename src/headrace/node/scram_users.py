"""SCRAM credentials of users, and what those of users that do not exist look like.

Credentials differ in what everybody is shown: the iterations and the form of the salt, which depend on the
tool that has set the password. A user that does not exist has one of the forms that users have. Which one
depends on its name and on the cluster's secret alone, so it is the same on all nodes, and changes only when a
form comes or goes.
"""

import hmac
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from headrace.base.randomness import Randomness
from headrace.machines.metadata.security_image import SecurityImage
from headrace.machines.security.scram import MECHANISMS_BY_ID, Credential, Mechanism, is_base_36

SECRET_BYTES = 64

# Tools set three or four. The most usual ones count: each costs a login a few microseconds.
FORMS_MAX: Final = 8


class Form(NamedTuple):
    """What a client learns of a credential before it has proved anything; of PLAIN, by the time it takes."""

    mechanism: int
    iterations: int
    salt_bytes: int
    is_base_36: bool


class _Forms(NamedTuple):
    version: int  # of the credentials
    of_mechanism: dict[int, dict[Form, Credential]]  # each with one that has it
    strongest: dict[Form, Credential]  # of the credentials by which passwords of PLAIN are checked


class ScramUsers:
    __slots__ = ("_forms", "_own_secret", "_security")

    def __init__(self, security: Callable[[], SecurityImage], rng: Randomness) -> None:
        """`security` returns what the metadata has now."""
        self._security = security
        self._own_secret = rng.randbytes(SECRET_BYTES)  # while the cluster has no users, and so no secret
        self._forms: _Forms | None = None

    @property
    def secret(self) -> bytes:
        """What the credentials of users that do not exist are made from. It is the same on all nodes and
        after a restart: salts that differ would tell which users do not exist.
        """
        nobody = self._security().nobody
        return self._own_secret if nobody is None else nobody.server_key

    def credential(self, user: str, mechanism: Mechanism) -> Credential | None:
        return self._security().credentials.get((user, mechanism.id))

    def like(self, mechanism: Mechanism, user: str) -> Credential | None:
        """A credential of the mechanism that the user's looks like, if it has none."""
        found = self._chosen(self._current().of_mechanism.get(mechanism.id, {}), user)
        return None if found is None else found[1]

    def strongest_like(self, user: str) -> tuple[Mechanism, Credential] | None:
        """The same where the strongest credential of a user counts."""
        found = self._chosen(self._current().strongest, user)
        return None if found is None else (MECHANISMS_BY_ID[found[0].mechanism], found[1])

    def _chosen(self, forms: dict[Form, Credential], user: str) -> tuple[Form, Credential] | None:
        secret = self.secret

        def rank(one: tuple[Form, Credential]) -> bytes:
            return hmac.digest(secret, f"form\0{tuple(one[0])}\0{user}".encode(), "sha256")

        return max(forms.items(), key=rank, default=None)

    def _current(self) -> _Forms:
        security, forms = self._security(), self._forms
        if forms is None or forms.version != security.credentials_version:
            known = [pair for pair in security.credentials.items() if pair[0][1] in MECHANISMS_BY_ID]
            strongest: dict[str, tuple[int, Credential]] = {}
            for (user, number), credential in sorted(known, key=lambda pair: pair[0]):
                strongest[user] = number, credential  # the higher number is the stronger one
            forms = self._forms = _Forms(
                security.credentials_version,
                {
                    number: _usual((number, one) for (_, other), one in known if other == number)
                    for number in MECHANISMS_BY_ID
                },
                _usual(strongest.values()),
            )
        return forms


def _usual(credentials: Iterable[tuple[int, Credential]]) -> dict[Form, Credential]:
    """The most usual forms; of equally usual ones always the same."""
    examples: dict[Form, Credential] = {}
    times: Counter[Form] = Counter()
    for number, one in credentials:
        form = Form(number, one.iterations, len(one.salt), is_base_36(one.salt))
        times[form] += 1
        examples[form] = one
    usual = sorted(times, key=lambda form: (-times[form], form))[:FORMS_MAX]
    return {form: examples[form] for form in usual}
