"""A client of any schema registry with Confluent's REST API: Headrace's own, Confluent's, Karapace, Apicurio.

The schema of an id never changes, so the client caches it. Calls block; threads can share a client.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from headrace.schema_formats.schema import Imports, Reference, Schema, SchemaType
from headrace.schemas.errors import RegistryRefused
from headrace.schemas.registry_http import RegistryHttp

LATEST_TTL_S = 60.0
_SOFT_DELETED = (40404, 40406)  # a subject or version that was deleted before, but not permanently


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
        ssl_ca_location: str | None = None,
    ) -> None:
        """`url` can be several addresses, separated by commas: if one does not answer, the next is tried. An
        address can contain a user and a password. `ssl_ca_location` is a PEM file, or a directory, of
        authorities to trust in place of the system's.
        """
        self._http = RegistryHttp(url, user, password, timeout_s, ssl_ca_location)
        self._latest_ttl_s = latest_ttl_s
        self._lock = threading.Lock()
        self._schemas: dict[int, Schema] = {}
        self._ids_of_guids: dict[str, int] = {}
        self._registered: dict[tuple[str, Schema], Registered] = {}
        self._versions: dict[tuple[str, int], Registered] = {}
        self._latest: dict[str, tuple[float, Registered]] = {}

    def __repr__(self) -> str:
        return f"Registry({','.join(self._http.urls)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Without lock and caches: Spark pickles the registry for its tasks."""
        return {name: getattr(self, name) for name in ("_http", "_latest_ttl_s")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_http"].urls[0])  # type: ignore[misc]
        self.__dict__.update(state)

    # --- schemas -----------------------------------------------------------------------------------------

    def schema(self, id: int) -> Schema:
        """The schema with this id; raises SchemaUnknown if the registry does not have it."""
        found = self._schemas.get(id)
        if found is None:
            found = self._ask("GET", f"/schemas/ids/{id}", what=f"schema {id}", read=_schema)
            self._schemas[id] = found
        return found

    def id_of_guid(self, guid: str) -> int:
        found = self._ids_of_guids.get(guid)
        if found is None:
            path = f"/schemas/guids/{guid}/ids"
            found = self._ask("GET", path, what=f"schema {guid}", read=lambda reply: int(reply[0]["id"]))
            assert isinstance(found, int)
            self._ids_of_guids[guid] = found
        return found

    def register(self, subject: str, schema: Schema) -> int:
        """Registers the schema as a version of the subject; returns its id. Raises Incompatible if the
        level of the subject does not allow it.
        """
        return self.register_version(subject, schema).id

    def register_version(self, subject: str, schema: Schema) -> Registered:
        """Registers the schema as `register` does; returns the version."""
        with self._lock:  # a hundred threads that start together register once
            found = self._registered.get((subject, schema))
            if found is None:
                path = f"/subjects/{_quoted(subject)}/versions"
                what = f"subject {subject!r}"
                reply = self._ask("POST", path, _body(schema), what=what, read=_with_id)
                if "version" not in reply:  # older ones say only the id
                    path = f"/subjects/{_quoted(subject)}"
                    reply |= self._ask("POST", path, _body(schema), what=what, read=_with_version)
                found = Registered(subject, reply["version"], reply["id"], schema, reply.get("guid"))
                self._registered[subject, schema] = found
                self._schemas.setdefault(found.id, schema)
        return found

    def find(self, subject: str, schema: Schema) -> Registered:
        """The version that has this schema; raises SchemaUnknown if there is none."""
        found = self._registered.get((subject, schema))
        if found is None:
            path = f"/subjects/{_quoted(subject)}"
            what = f"subject {subject!r}"
            found = self._ask("POST", path, _body(schema), what=what, read=_registered)
            self._registered[subject, schema] = found
        return found

    def latest(self, subject: str) -> Registered:
        """The newest version, looked up again once a minute (`latest_ttl_s`)."""
        known = self._latest.get(subject)
        if known is None or time.monotonic() - known[0] > self._latest_ttl_s:
            path = f"/subjects/{_quoted(subject)}/versions/latest"
            newest = self._ask("GET", path, what=f"subject {subject!r}", read=_registered)
            known = self._latest[subject] = time.monotonic(), newest
        return known[1]

    def version(self, subject: str, number: int) -> Registered:
        found = self._versions.get((subject, number))
        if found is None:
            path = f"/subjects/{_quoted(subject)}/versions/{number}?deleted=true"
            what = f"version {number} of subject {subject!r}"
            found = self._versions[subject, number] = self._ask("GET", path, what=what, read=_registered)
        return found

    def imports(self, schema: Schema) -> Imports:
        """The texts of the schemas that a schema refers to, each after those that it refers to itself."""
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

    def subjects(self, *, with_deleted: bool = False) -> list[str]:
        """All subjects; `with_deleted` includes those that were deleted, but not permanently."""
        path = "/subjects" + ("?deleted=true" if with_deleted else "")
        found: list[str] = self._ask("GET", path, what="subjects", read=_texts)
        return found

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[int]:
        path = f"/subjects/{_quoted(subject)}/versions" + ("?deleted=true" if with_deleted else "")
        found: list[int] = self._ask("GET", path, what=f"subject {subject!r}", read=_numbers)
        return found

    def obstacles(self, subject: str, schema: Schema, *, version: int | None = None) -> list[str]:
        """The reasons why the schema is not compatible with the versions that the subject's level
        requires, or with this version; empty if it is compatible.
        """
        which = "" if version is None else f"/{version}"
        path = f"/compatibility/subjects/{_quoted(subject)}/versions{which}?verbose=true"
        found: list[str] = self._ask(
            "POST", path, _body(schema), what=f"subject {subject!r}", read=_obstacles
        )
        return found

    def level(self, subject: str | None = None) -> str:
        """The compatibility level of the subject; without a subject, the default level."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}?defaultToGlobal=true"
        return str(self._ask("GET", path, what="levels", read=lambda reply: reply["compatibilityLevel"]))

    def set_level(self, level: str, subject: str | None = None) -> None:
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        self._ask("PUT", path, {"compatibility": level}, what="levels")

    def delete(self, subject: str, *, permanently: bool = False) -> list[int]:
        """Deletes a subject; returns the deleted versions. Ids stay valid until all their versions are
        deleted permanently.
        """
        gone: list[int] = self._delete(subject, f"/subjects/{_quoted(subject)}", permanently, _numbers)
        return gone

    def delete_version(self, subject: str, number: int, *, permanently: bool = False) -> None:
        self._delete(subject, f"/subjects/{_quoted(subject)}/versions/{number}", permanently, int)

    def _delete(self, subject: str, path: str, permanently: bool, read: Callable[[Any], Any]) -> Any:
        what = f"subject {subject!r}"
        gone: Any = None
        try:
            gone = self._ask("DELETE", path, what=what, read=read)
        except RegistryRefused as error:
            if not permanently or error.code not in _SOFT_DELETED:
                raise
        if permanently:
            gone = self._ask("DELETE", f"{path}?permanent=true", what=what, read=read)
        with self._lock:
            self._latest.pop(subject, None)
            self._versions = {key: value for key, value in self._versions.items() if key[0] != subject}
            self._registered = {key: value for key, value in self._registered.items() if key[0] != subject}
        return gone

    def _ask(self, *arguments: Any, **more: Any) -> Any:
        return self._http.ask(*arguments, **more)


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
    text = reply["schema"]
    if not isinstance(text, str):
        raise TypeError("a text is expected")
    return Schema(text, SchemaType(reply.get("schemaType") or "AVRO"), references)


def _registered(reply: dict[str, Any]) -> Registered:
    return Registered(reply["subject"], reply["version"], reply["id"], _schema(reply), reply.get("guid"))


def _with_id(reply: Any) -> dict[str, Any]:
    return {**reply, "id": int(reply["id"])}


def _with_version(reply: Any) -> dict[str, Any]:
    return {**reply, "version": int(reply["version"])}


def _texts(reply: Any) -> list[str]:
    return [str(name) for name in _list(reply)]


def _numbers(reply: Any) -> list[int]:
    return [int(number) for number in _list(reply)]


def _list(reply: Any) -> list[Any]:
    if not isinstance(reply, list):
        raise TypeError("a list is expected")
    return reply


def _obstacles(reply: Any) -> list[str]:
    if reply["is_compatible"]:
        return []
    return [str(line) for line in reply.get("messages") or ["the registry does not say why"]]
