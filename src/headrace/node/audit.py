"""Entries of the audit log: logins, refused rights, and changes of the cluster's metadata.

An entry is a dict of facts. The node hands entries to its driver as an effect, and the server writes them to
a file (`server/audit_log.py`). What clients can cause without end is limited and counted
(`machines/security/repetitions.py`). Changes are always written, also if the client has gone before its
answer. Fast paths ask for no rights, so they have no entries.

No entry has a password, a key or the HMAC of a token.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.base.time import Now
from headrace.machines.security.acl_rules import Operation, ResourceType, word
from headrace.machines.security.acls import Explanation
from headrace.machines.security.repetitions import PERIOD_MS, Repeated, Repetitions
from headrace.node.connection import Connection
from headrace.node.effects import Effect, LoseAudit, WriteAudit
from headrace.node.ports import Deadlines, Once
from headrace.node.rights import REFUSALS
from headrace.node.routes import Request, WebRequest
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.metadata_log import MetadataLog
    from headrace.node.topic_creation import TopicCreation

Entry = dict[str, Any]

# Why the authorizer refuses a right.
Explain = Callable[[Connection, Operation, ResourceType, str], Explanation]

# Texts of changes that wait until they are committed, with those of their settings: about ten megabytes. Most
# wait for milliseconds; without a majority of controllers nothing is committed, and clients go on asking for
# changes.
UNCOMMITTED_TEXTS_MAX: Final = 20_000
TOO_MANY_UNCOMMITTED: Final = "too many changes wait for their commit"

# Clients make up names. Those of topics have 249 characters at the most.
TEXT_CHARACTERS_MAX: Final = 300


# Results of changes that have an entry already, as a refused right.
WRITTEN_AS_REFUSED: Final = frozenset(code.name for code in REFUSALS.values())


class Kind(NamedTuple):
    """What entries of one kind have in common."""

    event: str
    facts: tuple[tuple[str, str], ...]


class Audit:
    __slots__ = ("_deadlines", "_effects", "_repetitions", "_uncommitted_texts", "tells_allowed")

    def __init__(self, effects: list[Effect], deadlines: Deadlines, *, tells_allowed: bool = False) -> None:
        self._effects = effects
        self._deadlines = deadlines
        self._repetitions = Repetitions()
        self._uncommitted_texts = 0
        self.tells_allowed = tells_allowed  # at level debug

    # --- logins ------------------------------------------------------------------------------------------

    def login(self, now: Now, connection: Connection, mechanism: str) -> None:
        facts = (("principal", connection.principal), ("address", connection.address))
        if self._admits(now, Kind("login", facts)):
            self._write(now, "login", client_facts(connection) | {"mechanism": mechanism})

    def login_refused(self, now: Now, connection: Connection, mechanism: str, user: str, reason: str) -> None:
        """`user`: who the client says it is; "" before it has said so."""
        if self._admits(now, Kind("login_refused", (("address", connection.address),))):
            facts: Entry = {"address": connection.address, "listener": connection.listener}
            if mechanism:
                facts["mechanism"] = mechanism
            if user:
                facts["user"] = clipped(user)
            self._write(now, "login_refused", facts | {"reason": reason})

    # --- rights ------------------------------------------------------------------------------------------

    def refused(
        self,
        request: Request | WebRequest,
        operation: Operation,
        resource: ResourceType,
        name: str,
        explain: Explain,
    ) -> None:
        right = right_facts(operation, resource)
        who = ("principal", request.connection.principal)
        if self._admits(request.now, Kind("refused", (who, *right.items()))):
            explanation = explain(request.connection, operation, resource, name)
            why: Entry = {"rule": "no rule" if explanation.rule is None else clipped(explanation.reason)}
            if explanation.rule is None:
                why["reason"] = clipped(explanation.reason)
            self._write(
                request.now, "refused", request_facts(request) | right | {"name": clipped(name)} | why
            )

    def allowed(
        self, request: Request | WebRequest, operation: Operation, resource: ResourceType, name: str
    ) -> None:
        """Only at level debug."""
        right = right_facts(operation, resource) | {"name": clipped(name)}
        who = ("principal", request.connection.principal)
        if self._admits(request.now, Kind("allowed", (who, *right.items()))):
            self._write(request.now, "allowed", request_facts(request) | right)

    # --- changes -----------------------------------------------------------------------------------------

    def decided(self, metadata: "MetadataLog", request: Request, reply: Any) -> None:
        """The controller has decided a request: what it changes is written when that is committed."""
        from headrace.node.audit_changes import note

        note(self, metadata, request, reply)

    def hold(self, changes: list[Entry]) -> list[Entry]:
        """As many of the changes as may wait for their commit, in their order; the others are lost. Whoever
        holds them calls `release`.
        """
        held: list[Entry] = []
        for change in changes:
            texts = texts_of(change)
            if self._uncommitted_texts + texts > UNCOMMITTED_TEXTS_MAX:
                break
            self._uncommitted_texts += texts
            held.append(change)
        if len(held) < len(changes):
            self._effects.append(LoseAudit(len(changes) - len(held), TOO_MANY_UNCOMMITTED))
        return held

    def release(self, held: list[Entry]) -> None:
        self._uncommitted_texts -= sum(map(texts_of, held))

    def changed(self, now: Now, client: Entry, changes: list[Entry]) -> None:
        """`client`: the facts of the request that asked for the changes. Those that were made are all
        written. Of those that failed only some are: they cost a client nothing.
        """
        common = {"event": "changed"} | client
        written = []
        for change in changes:
            result = change["result"]
            if result in WRITTEN_AS_REFUSED:
                continue
            who = ("principal", client["principal"])
            kind = Kind("changed", (who, ("change", change["change"]), ("result", result)))
            if result == ErrorCode.NONE.name or self._admits(now, kind):
                written.append(common | change)
        if written:
            self._effects.append(WriteAudit(now.wall_ms, written))

    def creation_of(self, request: Request) -> "Callable[[Now, TopicCreation], None]":
        """Writes that a topic was created because a request named it."""
        client = request_facts(request)

        def created(now: Now, creation: "TopicCreation") -> None:
            change: Entry = {"change": "topic created", "topic": clipped(creation.name)}
            self.changed(now, client, [change | {"result": creation.error.name}])

        return created

    # --- repetitions -------------------------------------------------------------------------------------

    def _admits(self, now: Now, kind: Kind) -> bool:
        if self._repetitions.is_empty:
            Once(self._deadlines, now.after_ms(PERIOD_MS), self.end_period)
        return self._repetitions.admits(kind)

    def end_period(self, now: Now) -> None:
        """Writes how many entries were only counted. The node also calls it when it stops."""
        entries = [count_facts(repeated) for repeated in self._repetitions.end()]
        if entries:
            self._effects.append(WriteAudit(now.wall_ms, entries))

    def _write(self, now: Now, event: str, facts: Entry) -> None:
        self._effects.append(WriteAudit(now.wall_ms, [{"event": event} | facts]))


def texts_of(change: Entry) -> int:
    """One for itself, and one for each of its settings or quotas."""
    return 1 + sum(len(fact) for fact in change.values() if isinstance(fact, dict))


def client_facts(connection: Connection) -> Entry:
    return {
        "principal": connection.principal,
        "address": connection.address,
        "listener": connection.listener,
    }


def request_facts(request: Request | WebRequest) -> Entry:
    facts = client_facts(request.connection)
    if isinstance(request, WebRequest):
        return facts | {"api": "http", "request": clipped(request.what)}
    if request.client_id:
        facts["client_id"] = clipped(request.client_id)
    return facts | {"api": ApiKey(request.route.api_key).name.lower()}


def right_facts(operation: Operation, resource: ResourceType) -> dict[str, str]:
    return {"operation": word(Operation, operation), "resource": word(ResourceType, resource).lower()}


def count_facts(repeated: Repeated) -> Entry:
    more = f"and {repeated.times:,} more like it in {PERIOD_MS // 1000} s"
    if repeated.kind is None:
        more = f"and {repeated.times:,} more of many kinds in {PERIOD_MS // 1000} s"
        return {"event": "repeated", "count": repeated.times, "text": more}
    assert isinstance(repeated.kind, Kind)
    of = {"event": "repeated", "of": repeated.kind.event} | dict(repeated.kind.facts)
    return of | {"count": repeated.times, "text": more}


def clipped(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    return f"{text[:TEXT_CHARACTERS_MAX]}… ({len(text):,} characters)"
