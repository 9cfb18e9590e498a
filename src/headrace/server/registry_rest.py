"""Confluent's REST API for the schema registry: URL routes, status codes and JSON bodies.

Pure: a request in; a status, a body and the records to append out. The server (registry.py) appends the
records, and only then sends the answer. Whether the client may do this was decided before, by the table of
`machines/schema_registry/routes.py`; what it may not see is left out here.
"""

import base64
import json
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from headrace.machines.http.json_depth import is_deeper
from headrace.machines.schema_registry import errors
from headrace.machines.schema_registry.errors import RegistryError
from headrace.machines.schema_registry.records import NUMBER_MAX, Record, Version
from headrace.machines.schema_registry.registry import LATEST, Registry, guid
from headrace.machines.schema_registry.routes import RIGHTS, find_route
from headrace.schema_formats.protobuf.schema import ProtobufSchema
from headrace.schema_formats.schema import Reference, Schema, SchemaType

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
NUMBER_DIGITS_MAX = len(str(NUMBER_MAX))
SHOWN_MAX = 100  # of what was asked for, in an error
# A request has three levels; those of a schema do not count, because it is a text.
JSON_LEVELS_MAX = 16

Sees = Callable[[str], bool]  # whether the client may know of a subject


class Answer(NamedTuple):
    status: int
    body: bytes
    records: tuple[Record, ...] = ()
    content_type: str = CONTENT_TYPE
    references: tuple[Reference, ...] = ()  # that the request makes: the client must be allowed to see them


class Call(NamedTuple):
    registry: Registry
    query: Mapping[str, str]
    body: Any
    sees: Sees | None  # None: everything

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def field(self, name: str) -> Any:
        return self.body.get(name) if isinstance(self.body, dict) else None


def answer(
    registry: Registry, method: str, target: str, body: bytes = b"", sees: Sees | None = None
) -> Answer:
    """What to reply to `method target`. Nothing in the registry has changed yet: that is what replaying the
    answer's records does.
    """
    call = None
    try:
        path, _, query = target.partition("?")
        route = find_route(method, target)
        if route is None:
            raise RegistryError(404, "HTTP 404 Not Found")
        handler = _HANDLERS.get((route.method, route.path))
        if handler is None:
            allowed = ", ".join(sorted(RIGHTS[route.path]))
            raise RegistryError(405, f"HTTP 405 Method Not Allowed: {allowed} {path}")
        call = Call(registry, dict(parse_qsl(query, keep_blank_values=True)), _json(body), sees)
        found = handler(call, *route.arguments)
    except RegistryError as error:
        found = failure(error)
    except UnicodeEncodeError:
        found = failure(errors.invalid_schema("it has half of a surrogate pair, which is not a character"))
    return found if call is None else found._replace(references=_references_of(call))


def failure(error: RegistryError) -> Answer:
    # what was asked for is part of some messages, and need not be text
    message = error.message.encode(errors="replace").decode()
    # Confluent's codes begin with the status: 40401 is a 404
    status = error.code if error.code < 1000 else error.code // 100
    return _reply({"error_code": error.code, "message": message}, status=status)


def _json(body: bytes) -> Any:
    if not body:
        return None
    if is_deeper(body, JSON_LEVELS_MAX):
        raise RegistryError(400, f"the body has more than {JSON_LEVELS_MAX} levels of objects and lists")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"the body is not JSON: {error}") from error


def _reply(value: Any, records: tuple[Record, ...] = (), *, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), records)


# --- routes -----------------------------------------------------------------------------------------------

Handler = Callable[..., Answer]
_HANDLERS: dict[tuple[str, str], Handler] = {}  # by method and path of the table of rights


def _route(method: str, *paths: str) -> Callable[[Handler], Handler]:
    """`*` stands for an argument."""

    def add(handler: Handler) -> Handler:
        for path in paths:
            assert method in RIGHTS[path], "each route needs a right"
            _HANDLERS[method, path] = handler
        return handler

    return add


def _number(version: str) -> int:
    if version == "latest" or version == "-1":
        return LATEST
    number = _whole(version)
    if number is None or number < 1:
        raise errors.invalid_version(_shown(version))
    return number


def _id(text: str) -> int:
    number = _whole(text)
    if number is None:
        raise errors.schema_not_found(_shown(text))
    return number


def _whole(text: str) -> int | None:
    """The number that these digits are; None if they are none, or if it has more than 31 bits.

    `str.isdigit` is true of ², which `int` refuses, and `int` refuses thousands of digits.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX):
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"


def _given_schema(call: Call) -> Schema:
    text = call.field("schema")
    if not isinstance(text, str) or not text.strip():
        raise errors.invalid_schema("there is no schema in the request")
    for unsupported in ("metadata", "ruleSet"):
        if call.field(unsupported):
            raise RegistryError(42201, f"This registry does not support {unsupported}: leave it out")
    kind = call.field("schemaType") or "AVRO"
    if not isinstance(kind, str) or kind not in SchemaType.__members__:
        raise errors.invalid_schema(f"{_shown(repr(kind))} is neither AVRO, JSON nor PROTOBUF")
    references = call.field("references") or []
    if not isinstance(references, list):
        raise errors.invalid_schema("references must be a list")
    return Schema(text, SchemaType(kind), tuple(_reference(each) for each in references))


def _reference(given: Any) -> Reference:
    match given:
        case {"name": str(name), "subject": str(subject), "version": int(version)} if (
            type(version) is int and -1 <= version <= NUMBER_MAX
        ):
            return Reference(name, subject, version)
    raise errors.invalid_schema(f"a reference needs a name, a subject and a version: {_shown(repr(given))}")


def _references_of(call: Call) -> tuple[Reference, ...]:
    """Those that can be read; the others are an error anyway."""
    given = call.field("references")
    found = []
    for one in given if isinstance(given, list) else []:
        try:
            found.append(_reference(one))
        except RegistryError:
            continue
    return tuple(found)


def _sees(call: Call, subject: str) -> bool:
    return call.sees is None or call.sees(subject)


def _visible_id(call: Call, id: int, shown: object) -> int:
    """The client may see one of its subjects, now or in the past; or it is as if it was not there."""
    if call.sees is not None and not any(map(call.sees, call.registry.subjects_of(id))):
        raise errors.schema_not_found(shown)
    return id


def _id_of(call: Call, text: str) -> int:
    return _visible_id(call, _id(text), text)


def _id_of_guid(call: Call, guid: str) -> int:
    return _visible_id(call, call.registry.id_of_guid(guid), guid)


def _described(call: Call, version: Version) -> dict[str, Any]:
    return {"subject": version.subject, "id": version.id, "version": version.version} | _content(
        call, version.schema
    )


def _content(call: Call, schema: Schema) -> dict[str, Any]:
    shown: dict[str, Any] = {"guid": guid(schema)}
    if schema.type is not SchemaType.AVRO:
        shown["schemaType"] = schema.type.value
    if schema.references:
        shown["references"] = [each._asdict() for each in schema.references]
    return shown | {"schema": _text(call, schema)}


def _text(call: Call, schema: Schema) -> str:
    if call.query.get("format") == "serialized" and schema.type is SchemaType.PROTOBUF:
        parsed = call.registry.parsed(schema)
        assert isinstance(parsed, ProtobufSchema)
        return base64.b64encode(parsed.descriptor).decode()
    return schema.text


def _page(call: Call, items: list[Any]) -> list[Any]:
    offset, limit = (_page_number(call.query.get(name) or "") for name in ("offset", "limit"))
    return items[offset:][: None if limit is None else limit]


def _page_number(text: str) -> int | None:
    if text in ("", "-1"):
        return None
    number = _whole(text)
    if number is None:
        raise RegistryError(400, "offset and limit must be numbers")
    return number


# --- schemas ----------------------------------------------------------------------------------------------


@_route("GET", "/")
def _root(call: Call) -> Answer:
    return _reply({})


@_route("GET", "/schemas/types")
def _types(call: Call) -> Answer:
    return _reply(["JSON", "PROTOBUF", "AVRO"])


@_route("GET", "/schemas")
def _schemas(call: Call) -> Answer:
    prefix = call.query.get("subjectPrefix", "")
    found = [
        one
        for one in call.registry.all(with_deleted=call.flag("deleted"))
        if one.subject.startswith(prefix) and _sees(call, one.subject)
    ]
    if call.flag("latestOnly"):
        found = list({one.subject: one for one in found}.values())
    return _reply([_described(call, one) for one in _page(call, found)])


@_route("GET", "/schemas/ids/*")
def _schema_of_id(call: Call, id: str) -> Answer:
    schema = call.registry.schema(_id_of(call, id))
    extra = {"maxId": call.registry.id_max} if call.flag("fetchMaxId") else {}
    return _reply(_content(call, schema) | extra)


@_route("GET", "/schemas/ids/*/schema")
def _text_of_id(call: Call, id: str) -> Answer:
    return Answer(200, _text(call, call.registry.schema(_id_of(call, id))).encode())


@_route("GET", "/schemas/ids/*/subjects")
def _subjects_of_id(call: Call, id: str) -> Answer:
    found = call.registry.uses_of(_id_of(call, id), with_deleted=call.flag("deleted"))
    return _reply(sorted({one.subject for one in found if _sees(call, one.subject)}))


@_route("GET", "/schemas/ids/*/versions")
def _versions_of_id(call: Call, id: str) -> Answer:
    found = call.registry.uses_of(_id_of(call, id), with_deleted=call.flag("deleted"))
    return _reply(
        [{"subject": one.subject, "version": one.version} for one in found if _sees(call, one.subject)]
    )


@_route("GET", "/schemas/guids/*")
def _schema_of_guid(call: Call, guid: str) -> Answer:
    id = _id_of_guid(call, guid)
    return _reply({"id": id} | _content(call, call.registry.schema(id)))


@_route("GET", "/schemas/guids/*/ids")
def _ids_of_guid(call: Call, guid: str) -> Answer:
    return _reply([{"context": ".", "id": _id_of_guid(call, guid)}])


@_route("GET", "/contexts")
def _contexts(call: Call) -> Answer:
    return _reply(["."])


@_route("GET", "/v1/metadata/id")
def _cluster(call: Call) -> Answer:
    return _reply({"scope": {"path": [], "clusters": {"schema-registry-cluster": "headrace"}}, "id": ""})


# --- subjects ---------------------------------------------------------------------------------------------


@_route("GET", "/subjects")
def _subjects(call: Call) -> Answer:
    prefix = call.query.get("subjectPrefix", "")
    found = call.registry.subjects(with_deleted=call.flag("deleted"), only_deleted=call.flag("deletedOnly"))
    return _reply(_page(call, [name for name in found if name.startswith(prefix) and _sees(call, name)]))


@_route("POST", "/subjects/*")
def _look_up(call: Call, subject: str) -> Answer:
    found = call.registry.find(subject, _given_schema(call), with_deleted=call.flag("deleted"))
    return _reply(_described(call, found))


@_route("DELETE", "/subjects/*")
def _delete_subject(call: Call, subject: str) -> Answer:
    return _reply(*call.registry.delete_subject(subject, is_permanent=call.flag("permanent")))


@_route("GET", "/subjects/*/versions")
def _versions(call: Call, subject: str) -> Answer:
    if call.flag("deletedOnly"):
        everything = call.registry.versions(subject, with_deleted=True)
        return _reply(_page(call, [one.version for one in everything if one.is_deleted]))
    found = call.registry.versions(subject, with_deleted=call.flag("deleted"))
    return _reply(_page(call, [one.version for one in found]))


@_route("POST", "/subjects/*/versions")
def _register(call: Call, subject: str) -> Answer:
    if not subject.strip() or any(unicodedata.category(one) == "Cc" for one in subject):
        raise RegistryError(42208, "The specified subject is not a valid subject name.")
    id, number = call.field("id"), call.field("version")
    for given in (id, number):
        if given is not None and (type(given) is not int or not -1 <= given <= NUMBER_MAX):
            raise errors.invalid_version(_shown(str(given)))
    version, records = call.registry.register(
        subject,
        _given_schema(call),
        id=id if id is not None and id > 0 else None,
        number=number if number is not None and number > 0 else None,
    )
    # not the schema itself: clients would keep it, also when they had sent it in another form
    shown = {"id": version.id, "version": version.version, "guid": guid(version.schema)}
    return _reply(shown, records)


@_route("GET", "/subjects/*/versions/*")
def _version(call: Call, subject: str, version: str) -> Answer:
    found = call.registry.version(subject, _number(version), with_deleted=call.flag("deleted"))
    return _reply(_described(call, found))


@_route("GET", "/subjects/*/versions/*/schema")
def _version_text(call: Call, subject: str, version: str) -> Answer:
    found = call.registry.version(subject, _number(version), with_deleted=call.flag("deleted"))
    return Answer(200, _text(call, found.schema).encode())


@_route("GET", "/subjects/*/versions/*/referencedby")
def _referenced_by(call: Call, subject: str, version: str) -> Answer:
    found = call.registry.version(subject, _number(version), with_deleted=True)
    referrers = [
        id
        for id in call.registry.referrers(subject, found.version)
        if call.sees is None or any(map(call.sees, call.registry.subjects_of(id)))
    ]
    return _reply(_page(call, referrers))


@_route("DELETE", "/subjects/*/versions/*")
def _delete_version(call: Call, subject: str, version: str) -> Answer:
    is_permanent = call.flag("permanent")
    return _reply(*call.registry.delete_version(subject, _number(version), is_permanent=is_permanent))


# --- compatibility, levels, modes -------------------------------------------------------------------------


@_route("POST", "/compatibility/subjects/*/versions")
def _compatible(call: Call, subject: str) -> Answer:
    return _compatibility(call, call.registry.violations(subject, _given_schema(call)))


@_route("POST", "/compatibility/subjects/*/versions/*")
def _compatible_with(call: Call, subject: str, version: str) -> Answer:
    number = _number(version)
    return _compatibility(call, call.registry.violations(subject, _given_schema(call), number))


def _compatibility(call: Call, found: list[str]) -> Answer:
    reply: dict[str, Any] = {"is_compatible": not found}
    if call.flag("verbose"):
        reply["messages"] = found
    return _reply(reply)


def _setting(
    call: Call,
    subject: str | None,
    read: Callable[[str | None], str | None],
    missing: Callable[[str], Exception],
) -> str:
    """A setting of all subjects, or of one, which may have none of its own."""
    value = read(subject)
    if value is None and call.flag("defaultToGlobal"):
        value = read(None)
    if value is None:
        assert subject is not None, "all subjects always have one"
        raise missing(subject)
    return value


@_route("GET", "/config", "/config/*")
def _level(call: Call, subject: str | None = None) -> Answer:
    return _reply({"compatibilityLevel": _setting(call, subject, call.registry.level, errors.no_level)})


@_route("PUT", "/config", "/config/*")
def _set_level(call: Call, subject: str | None = None) -> Answer:
    level, records = call.registry.set_level(subject, call.field("compatibility"))
    return _reply({"compatibility": level}, records)


@_route("DELETE", "/config", "/config/*")
def _unset_level(call: Call, subject: str | None = None) -> Answer:
    level, records = call.registry.unset_level(subject)
    return _reply({"compatibilityLevel": level}, records)


@_route("GET", "/mode", "/mode/*")
def _mode(call: Call, subject: str | None = None) -> Answer:
    return _reply({"mode": _setting(call, subject, call.registry.mode, errors.no_mode)})


@_route("PUT", "/mode", "/mode/*")
def _set_mode(call: Call, subject: str | None = None) -> Answer:
    mode, records = call.registry.set_mode(subject, call.field("mode"), is_forced=call.flag("force"))
    return _reply({"mode": mode}, records)


@_route("DELETE", "/mode", "/mode/*")
def _unset_mode(call: Call, subject: str | None = None) -> Answer:
    mode, records = call.registry.unset_mode(subject)
    return _reply({"mode": mode}, records)
