"""Logins of clients on SASL listeners and by HTTP, which share users, tokens and their limits.

Each part is made, and its modules are imported, when the settings or the first request ask for it: most nodes
start without any of them.
"""

from functools import cached_property
from typing import TYPE_CHECKING

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.node.authorization import Access
from headrace.node.metadata_log import MetadataLog
from headrace.node.metrics import Metrics
from headrace.node.ports import Ports
from headrace.node.settings import LiveSettings

if TYPE_CHECKING:
    from headrace.node.bearer_checks import BearerChecks
    from headrace.node.http_clients import HttpClients
    from headrace.node.logins import Logins
    from headrace.node.scram_users import ScramUsers


class ClientLogins:
    def __init__(
        self,
        settings: LiveSettings,
        metadata: MetadataLog,
        access: Access,
        rng: Randomness,
        ports: Ports,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._access = access
        self._rng = rng
        self._ports = ports
        self._metrics = metrics
        self.sasl = self._make_logins(now)

    @cached_property
    def bearer_checks(self) -> "BearerChecks":
        """The check of bearer tokens, also for requests by HTTP."""
        from headrace.node.bearer_checks import BearerChecks

        return BearerChecks(self._settings.current.texts, self._ports)

    def _make_logins(self, now: Now) -> "Logins | None":
        """None if no listener asks for a login."""
        settings = self._settings.current
        if not any(listener.uses_sasl for listener in settings.served_listeners):
            return None
        from headrace.node.logins import Logins

        metadata = self._metadata
        logins = Logins(
            settings,
            lambda: metadata.image.security,
            self.bearer_checks,
            self._rng,
            self._ports,
            self._metrics,
            now,
            self._access.audit,
        )
        metadata.followers.append(logins)
        return logins

    @cached_property
    def http(self) -> "HttpClients":
        """What clients by HTTP have to prove, and what they may do."""
        from headrace.node.http_clients import HttpClients

        return HttpClients(
            self._settings.current,
            self._access,
            self._scram_users(),
            self.bearer_checks,
            self._ports,
            self._metrics,
        )

    def _scram_users(self) -> "ScramUsers":
        if self.sasl is not None:
            return self.sasl.users
        from headrace.node.scram_users import ScramUsers

        metadata = self._metadata
        return ScramUsers(lambda: metadata.image.security, self._rng)
