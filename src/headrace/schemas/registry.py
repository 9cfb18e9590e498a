"""A client of any schema registry with Confluent's REST API: Headrace's own, Confluent's, Karapace, Apicurio.

What an id means never changes, so it is asked for once. Blocks, and may be shared by threads.
"""

import base64
import json
import threading
import time
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from headrace.machines.schemas.schema import Imports, Reference, Schema, SchemaType
from headrace.schemas.errors import (
    Incompatible,
    RegistryRefused,
    RegistryUnreachable,
    SchemaError,
    SchemaUnknown,
)

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
ANSWER_BYTES_MAX = 64 * 1024 * 1024
LATEST_TTL_S = 60.0

_UNKNOWN = (404, 40401, 40402, 40403)


class Registered(NamedTuple):
    """A schema as one version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema
    guid: str | None = None  # older registries have none


class Registry:
    """
    >>> from headrace.schemas import Registry, Schema
    >>> registry = Registry(registry_url)
    >>> registry.register("pets-value", Schema('{"type": "string"}'))
    1
    >>> registry.schema(1).text
    '{"type": "string"}'
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        timeout_s: float = 10.0,
        latest_ttl_s: float = LATEST_TTL_S,
    ) -> None:
        """`url` may be several, with commas between: the next is asked when one does not answer. A user and
        password may also stand in the address.
        """
        self._urls: list[str] = []
        for one in url.split(","):
            parts = urlsplit(one.strip())
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise SchemaError(f"{one.strip()!r} is not the address of a registry: http://host:port")
            if parts.username is not None:
                user, password = parts.username, parts.password or ""
            place = parts.netloc.rpartition("@")[2]
            self._urls.append(f"{parts.scheme}://{place}{parts.path.rstrip('/')}")
        self._login: str | None = None
        if user is not None:
            pair = f"{user}:{password or ''}".encode()
            self._login = "Basic " + base64.b64encode(pair).decode()
        self._timeout_s = timeout_s
        self._latest_ttl_s = latest_ttl_s
        self._lock = threading.Lock()
        self._schemas: dict[int, Schema] = {}
        self._ids_of_guids: dict[str, int] = {}
        self._registered: dict[tuple[str, Schema], Registered] = {}
        self._versions: dict[tuple[str, int], Registered] = {}
        self._latest: dict[str, tuple[float, Registered]] = {}

    def __repr__(self) -> str:
        return f"Registry({','.join(self._urls)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Without lock and caches: a task of Spark takes the registry along."""
        return {name: getattr(self, name) for name in ("_urls", "_login", "_timeout_s", "_latest_ttl_s")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(",".join(state["_urls"]))  # type: ignore[misc]
        self.__dict__.update(state)

    # --- schemas -----------------------------------------------------------------------------------------

    def schema(self, id: int) -> Schema:
        """What the id means. SchemaUnknown if nobody knows."""
        found = self._schemas.get(id)
        if found is None:
            found = self._schemas[id] = _schema(self._ask("GET", f"/schemas/ids/{id}", what=f"schema {id}"))
        return found

    def id_of_guid(self, guid: str) -> int:
        found = self._ids_of_guids.get(guid)
        if found is None:
            reply = self._ask("GET", f"/schemas/guids/{guid}/ids", what=f"schema {guid}")
            found = self._ids_of_guids[guid] = int(reply[0]["id"])
        return found

    def register(self, subject: str, schema: Schema) -> int:
        """The id of the schema, which is a version of the subject from now on. Incompatible if it may not
        be.
        """
        return self.registered(subject, schema).id

    def registered(self, subject: str, schema: Schema) -> Registered:
        """The same, with the version's number."""
        with self._lock:  # a hundred threads that start together register once
            found = self._registered.get((subject, schema))
            if found is None:
                path = f"/subjects/{_quoted(subject)}/versions"
                reply = self._ask("POST", path, _body(schema), what=f"subject {subject!r}")
                if "version" not in reply:  # older ones say only the id
                    reply |= self._ask("POST", f"/subjects/{_quoted(subject)}", _body(schema), what=subject)
                found = Registered(subject, reply["version"], reply["id"], schema, reply.get("guid"))
                self._registered[subject, schema] = found
                self._schemas.setdefault(found.id, schema)
        return found

    def find(self, subject: str, schema: Schema) -> Registered:
        """The version that has this schema. SchemaUnknown if none has."""
        found = self._registered.get((subject, schema))
        if found is None:
            reply = self._ask(
                "POST", f"/subjects/{_quoted(subject)}", _body(schema), what=f"subject {subject!r}"
            )
            found = self._registered[subject, schema] = _registered(reply)
        return found

    def latest(self, subject: str) -> Registered:
        """The newest version, asked for again once a minute (`latest_ttl_s`)."""
        known = self._latest.get(subject)
        if known is None or time.monotonic() - known[0] > self._latest_ttl_s:
            path = f"/subjects/{_quoted(subject)}/versions/latest"
            known = time.monotonic(), _registered(self._ask("GET", path, what=f"subject {subject!r}"))
            self._latest[subject] = known
        return known[1]

    def version(self, subject: str, number: int) -> Registered:
        found = self._versions.get((subject, number))
        if found is None:
            path = f"/subjects/{_quoted(subject)}/versions/{number}?deleted=true"
            reply = self._ask("GET", path, what=f"version {number} of subject {subject!r}")
            found = self._versions[subject, number] = _registered(reply)
        return found

    def imports(self, schema: Schema) -> Imports:
        """The texts that a schema refers to, each behind those that it refers to itself."""
        found: dict[str, str] = {}

        def gather(references: Sequence[Reference]) -> None:
            for name, subject, number in references:
                if name not in found:
                    referred = self.version(subject, number).schema
                    gather(referred.references)
                    found[name] = referred.text

        gather(schema.references)
        return list(found.items())

    # --- subjects ----------------------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        return [str(name) for name in self._ask("GET", "/subjects")]

    def versions(self, subject: str) -> list[int]:
        path = f"/subjects/{_quoted(subject)}/versions"
        return [int(number) for number in self._ask("GET", path, what=f"subject {subject!r}")]

    def obstacles(self, subject: str, schema: Schema) -> list[str]:
        """Why the schema could not be registered; empty: it could."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions?verbose=true"
        reply = self._ask("POST", path, _body(schema), what=f"subject {subject!r}")
        if reply["is_compatible"]:
            return []
        return [str(line) for line in reply.get("messages") or ["the registry does not say why"]]

    def level(self, subject: str | None = None) -> str:
        """The compatibility level that holds for the subject, or for all that have none of their own."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}?defaultToGlobal=true"
        return str(self._ask("GET", path)["compatibilityLevel"])

    def set_level(self, level: str, subject: str | None = None) -> None:
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        self._ask("PUT", path, {"compatibility": level})

    def delete(self, subject: str, *, permanently: bool = False) -> list[int]:
        """The versions that are gone. Ids stay known, until they are deleted permanently everywhere."""
        path = f"/subjects/{_quoted(subject)}"
        gone = self._ask("DELETE", path, what=f"subject {subject!r}")
        if permanently:
            gone = self._ask("DELETE", f"{path}?permanent=true")
        with self._lock:
            self._latest.pop(subject, None)
            self._registered = {key: value for key, value in self._registered.items() if key[0] != subject}
        return [int(number) for number in gone]

    # --- HTTP --------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, body: Any = None, *, what: str = "") -> Any:
        """The JSON of the first registry that answers."""
        failures = []
        for url in self._urls:
            request = Request(url + path, method=method)
            request.add_header("Accept", CONTENT_TYPE)
            if self._login is not None:
                request.add_header("Authorization", self._login)
            if body is not None:
                request.add_header("Content-Type", CONTENT_TYPE)
                request.data = json.dumps(body).encode()
            try:
                with urlopen(request, timeout=self._timeout_s) as answer:
                    return _json(answer.read(ANSWER_BYTES_MAX), url)
            except HTTPError as error:
                with error:
                    if error.code < 500:
                        raise _refusal(error, what) from None
                    failures.append(f"{url} answers {error.code}")
            except (URLError, HTTPException, TimeoutError, OSError) as error:
                failures.append(f"{url}: {getattr(error, 'reason', None) or error!r}")
        raise RegistryUnreachable("; ".join(failures))


def _json(data: bytes, url: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise RegistryRefused(200, f"{url} does not speak a registry's JSON") from None


def _refusal(error: HTTPError, what: str) -> SchemaError:
    code, message = error.code, error.reason
    try:
        reply = json.loads(error.read(ANSWER_BYTES_MAX))
        code, message = int(reply["error_code"]), str(reply["message"])
    except (ValueError, KeyError, TypeError):
        pass  # a proxy's page: its status says enough
    if code in _UNKNOWN:
        return SchemaUnknown(f"the registry does not know {what or 'this'}: {message}")
    return (Incompatible if code == 409 else RegistryRefused)(code, message)


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.type is not SchemaType.AVRO:
        body["schemaType"] = schema.type.value
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    return body


def _schema(reply: dict[str, Any]) -> Schema:
    references = tuple(
        Reference(each["name"], each["subject"], each["version"]) for each in reply.get("references") or ()
    )
    return Schema(reply["schema"], SchemaType(reply.get("schemaType") or "AVRO"), references)


def _registered(reply: dict[str, Any]) -> Registered:
    return Registered(reply["subject"], reply["version"], reply["id"], _schema(reply), reply.get("guid"))
