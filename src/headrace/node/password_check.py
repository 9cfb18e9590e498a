"""The check of a password by a SCRAM credential, as a job: PBKDF2 takes milliseconds of CPU, and releases the
interpreter meanwhile.
"""

from dataclasses import dataclass, field

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.plain import PlainLogin, check_scram_password
from headrace.machines.security.scram import Credential, Mechanism
from headrace.storage.disk import Disk
from headrace.storage.jobs import JobKind


@dataclass(slots=True, frozen=True)
class PasswordCheck:
    login: PlainLogin
    mechanism: Mechanism
    credential: Credential | None
    secret: bytes = field(repr=False)
    like: Credential | None

    @property
    def kind(self) -> JobKind:
        return JobKind.PATIENT

    def run(self, disk: Disk, /) -> str | None:
        """Why it is refused; None: it is the user's password."""
        try:
            check_scram_password(self.login, self.mechanism, self.credential, self.secret, self.like)
        except LoginRefused as refusal:
            return str(refusal)
        return None
