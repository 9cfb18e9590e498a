"""The registry as a machine: what it decides is only true once it is replayed, and a restart replays it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from harness.registry_in_memory import RegistryInMemory
from headrace.machines.schema_registry import registry as registry_module
from headrace.machines.schema_registry.records import Record, Unreadable
from headrace.machines.schema_registry.registry import Registry
from headrace.schema_formats.schema import Schema
from headrace.server.registry_rest import answer

SCHEMA_KEY = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
TEXTS = ['"int"', '"long"', '"string"', '{"type": "record", "name": "R", "fields": []}']


def test_records_are_confluents() -> None:
    memory = RegistryInMemory()
    memory.ask("POST", "/subjects/s/versions", {"schema": '"int"'})
    memory.ask("PUT", "/config/s", {"compatibility": "full"})
    memory.ask("PUT", "/mode", {"mode": "READWRITE"})
    memory.ask("DELETE", "/subjects/s")
    assert [(record.key.decode(), (record.value or b"").decode()) for record in memory.log] == [
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            '{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        ),
        (
            '{"keytype":"CONFIG","subject":"s","magic":0}',
            '{"subject":"s","compatibilityLevel":"FULL"}',
        ),
        ('{"keytype":"MODE","subject":null,"magic":0}', '{"subject":null,"mode":"READWRITE"}'),
        ('{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', '{"subject":"s","version":1}'),
    ]


def test_only_so_many_parsed_schemas_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks about ever new schemas does not fill it."""
    monkeypatch.setattr(registry_module, "PARSED_MAX", 5)
    registry = Registry()
    for size in range(1, 40):
        schema = Schema(f'{{"type": "fixed", "name": "F", "size": {size}}}')
        assert registry.parsed(schema) is registry.parsed(schema)
    assert len(registry._parsed) <= 5


def test_what_confluents_registry_wrote_is_understood() -> None:
    registry = Registry()
    for key, value in (
        ('{"keytype":"NOOP","magic":0}', None),
        ('{"keytype":"CONTEXT","tenant":"default","context":".","magic":0}', '{"tenant":"default"}'),
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            '{"subject":"s","version":1,"id":7,"md5":"x","schema":"\\"int\\"","deleted":false,"ts":1}',
        ),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"NONE","normalize":true}'),
    ):
        registry.replay(Record(key.encode(), None if value is None else value.encode()))
    assert registry.schema(7).text == '"int"'
    assert registry.level() == "NONE"
    for broken in (b"[]", b"{", b'{"keytype":"SCHEMA","subject":"s","version":1}'):
        with pytest.raises(Unreadable):
            registry.replay(Record(broken, b'{"id":1}'))


def test_import_keeps_ids() -> None:
    memory = RegistryInMemory()
    assert memory.ask("POST", "/subjects/s/versions", {"schema": '"int"', "id": 70})[0] == 422
    memory.ask("PUT", "/mode/s", {"mode": "IMPORT"})
    assert memory.ask("POST", "/subjects/s/versions", {"schema": '"int"', "id": 70, "version": 5})[0] == 200
    assert memory.ask("GET", "/subjects/s/versions/5")[1]["id"] == 70
    assert memory.ask("POST", "/subjects/s/versions", {"schema": '"long"', "id": 70})[0] == 422
    assert memory.ask("POST", "/subjects/other/versions", {"schema": '"string"'})[1]["id"] == 71


@pytest.mark.parametrize(
    ("method", "target", "body", "code"),
    [
        ("GET", "/nowhere", None, 404),
        ("PATCH", "/subjects", None, 405),
        ("GET", "/subjects/s/versions/0", None, 42202),
        ("GET", "/subjects/s/versions/x", None, 42202),
        ("GET", "/schemas/ids/x", None, 40403),
        ("POST", "/subjects/s/versions", {}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "x", "schemaType": "XML"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "references": [1]}, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "ruleSet": {"a": 1}}, 42201),
        ("PUT", "/mode", {"mode": "SLEEPY"}, 42204),
        ("GET", "/mode/s", None, 40409),
        ("DELETE", "/config/s", None, 40408),
        ("GET", "/subjects?limit=x", None, 400),
        ("GET", "/subjects?limit=²", None, 400),
        ("GET", f"/subjects?offset={'9' * 5000}", None, 400),
        ("GET", "/schemas/ids/²", None, 40403),
        ("GET", f"/schemas/ids/{'9' * 5000}", None, 40403),
        ("GET", f"/schemas/ids/{2**31}", None, 40403),
        ("GET", "/subjects/s/versions/²", None, 42202),
        ("GET", f"/subjects/s/versions/{'9' * 5000}", None, 42202),
        ("DELETE", f"/subjects/s/versions/{2**31}", None, 42202),
        ("POST", "/compatibility/subjects/s/versions/²", {"schema": '"int"'}, 42202),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "id": 2**31}, 42202),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "version": 10**4000}, 42202),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "references": 5}, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "schemaType": ["AVRO"]}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "\ud800"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "schemaType": "\ud800"}, 42201),
    ],
)
def test_refusals(method: str, target: str, body: Any, code: int) -> None:
    status, reply = RegistryInMemory().ask(method, target, body)
    assert reply["error_code"] == code
    assert status == (code if code < 1000 else code // 100)


PROTO = 'syntax = "proto3"; '


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(
            ("JSON", json.dumps({"type": "number", "multipleOf": factor}))
            for factor in (0, -1, 0.0, "2", True)
        ),
        ("JSON", '{"type": "number", "multipleOf": 1e999}'),
        ("JSON", '{"type": "number", "multipleOf": NaN}'),
        ("JSON", '{"type": "number", "minimum": Infinity}'),
        ("JSON", '{"type": "number", "maximum": %s}' % ("9" * 4000)),
        ("JSON", '{"type": "number", "maximum": %s}' % ("9" * 5000)),
        ("JSON", '{"$ref": "#/allOf/²", "allOf": [true]}'),
        ("JSON", '{"$ref": "#/allOf/%s", "allOf": [true]}' % ("9" * 5000)),
        ("AVRO", '{"type": "fixed", "name": "F", "size": %s}' % ("9" * 5000)),
        ("AVRO", '{"type": "fixed", "name": "F", "size": -1}'),
        ("PROTOBUF", PROTO + "message M { int32 x = %s; }" % ("9" * 5000)),
        ("PROTOBUF", PROTO + "message M { int32 x = 0x%s; }" % ("f" * 5000)),
        ("PROTOBUF", PROTO + "message M { int32 x = 1_0; }"),
        ("PROTOBUF", PROTO + "message M { int32 x = ²; }"),
        ("PROTOBUF", PROTO + "enum E { A = 0; B = %s; }" % ("9" * 5000)),
        ("PROTOBUF", PROTO + "enum E { A = 0; B = 0x%s; }" % ("f" * 5000)),
        ("PROTOBUF", 'syntax = "\\UFFFFFFFF"; '),
    ],
)
def test_numbers_that_no_schema_can_have(kind: str, text: str) -> None:
    """They are refused when they are registered, and a version with one that is there already (another
    registry may have let it in) breaks nothing.
    """
    memory = RegistryInMemory()
    body = {"schemaType": kind, "schema": text}
    status, reply = memory.ask("POST", "/subjects/s/versions", body)
    assert (status, reply["error_code"]) == (422, 42201), reply
    value = {"subject": "s", "version": 1, "id": 1, **body}
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    memory.registry.replay(Record(json.dumps(key).encode(), json.dumps(value).encode()))
    for target in ("/subjects/s/versions", "/subjects/s", "/compatibility/subjects/s/versions/1"):
        status, _ = memory.ask("POST", target, {"schemaType": kind, "schema": '{"type": "object"}'})
        assert status in (404, 409, 422)


@pytest.mark.parametrize(
    "value",
    [
        {"id": 10**4000, "version": 1},
        {"id": 1, "version": 2**31},
        {"id": "1", "version": 1},
        {"id": 1, "version": 1, "references": [{"name": "n", "subject": "s", "version": 10**4000}]},
        {"id": 1, "version": 1, "references": 7},
        {"id": True, "version": 1},
    ],
)
def test_records_whose_numbers_are_none_are_stepped_over(value: dict[str, Any]) -> None:
    registry = Registry()
    whole = {"subject": "s", "schema": '"int"', **value}
    with pytest.raises(Unreadable):
        registry.replay(Record(SCHEMA_KEY, json.dumps(whole).encode()))
    assert registry.state() == Registry().state()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ({"keytype": "SCHEMA", "subject": "s", "version": []}, None),
        ({"keytype": "SCHEMA", "subject": "s", "version": True}, None),
        ({"keytype": "CONFIG", "subject": []}, {"compatibilityLevel": "NONE"}),
        ({"keytype": "CONFIG", "subject": {}}, None),
        ({"keytype": "MODE", "subject": ["s"]}, {"mode": "READONLY"}),
        ({"keytype": "DELETE_SUBJECT", "subject": 1}, {"version": 1}),
        ({"keytype": "SCHEMA", "subject": "s"}, {"version": 2, "id": 2, "subject": "s", "schema": "\ud800"}),
        ({"keytype": "SCHEMA", "subject": "s"}, {"version": 2, "id": 2, "subject": "\ud800", "schema": "1"}),
    ],
)
def test_records_that_no_registry_wrote_are_stepped_over(key: dict[str, Any], value: Any) -> None:
    """Whoever may write to the topic could otherwise end the registry with one record: it is read again for
    every request.
    """
    registry, twin = Registry(), Registry()
    for each in (registry, twin):
        each.replay(
            Record(SCHEMA_KEY, json.dumps({"subject": "s", "version": 1, "id": 1, "schema": "1"}).encode())
        )
    with pytest.raises(Unreadable):
        registry.replay(
            Record(json.dumps(key).encode(), None if value is None else json.dumps(value).encode())
        )
    assert registry.state() == twin.state()


def test_an_id_is_not_given_again_after_its_schema_was_deleted_and_compacted_away() -> None:
    memory = RegistryInMemory()
    memory.ask("POST", "/subjects/low/versions", {"schema": '"int"'})
    assert memory.ask("POST", "/subjects/high/versions", {"schema": '"long"'})[1]["id"] == 2
    memory.ask("DELETE", "/subjects/high")
    memory.ask("DELETE", "/subjects/high?permanent=true")
    memory.restart_from(memory.compacted())
    assert memory.ask("POST", "/subjects/new/versions", {"schema": '"string"'})[1]["id"] == 3


class Stories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory = RegistryInMemory()
        self.ids: dict[int, str] = {}

    subjects = st.sampled_from(["a", "b"])

    @rule(subject=subjects, text=st.sampled_from(TEXTS))
    def register(self, subject: str, text: str) -> None:
        status, reply = self.memory.ask("POST", f"/subjects/{subject}/versions", {"schema": text})
        assert status in (200, 409, 422)
        if status == 200:
            assert self.ids.setdefault(reply["id"], text) == text, "an id means one schema for ever"

    @rule(subject=subjects, permanent=st.booleans())
    def delete(self, subject: str, permanent: bool) -> None:
        assert self.memory.ask("DELETE", f"/subjects/{subject}?permanent={permanent}")[0] in (200, 404, 422)

    @rule(subject=subjects, version=st.integers(1, 4), permanent=st.booleans())
    def delete_version(self, subject: str, version: int, permanent: bool) -> None:
        self.memory.ask("DELETE", f"/subjects/{subject}/versions/{version}?permanent={permanent}")

    @rule(subject=subjects, level=st.sampled_from(["NONE", "BACKWARD", "FULL"]))
    def set_level(self, subject: str, level: str) -> None:
        assert self.memory.ask("PUT", f"/config/{subject}", {"compatibility": level})[0] == 200

    @rule(subject=subjects, mode=st.sampled_from(["READWRITE", "READONLY"]))
    def set_mode(self, subject: str, mode: str) -> None:
        assert self.memory.ask("PUT", f"/mode/{subject}", {"mode": mode})[0] == 200

    @rule()
    def compact_and_restart(self) -> None:
        """What was deleted for good is forgotten; what its id was must not be."""
        self.memory.restart_from(self.memory.compacted())

    @invariant()
    def a_restart_changes_nothing(self) -> None:
        assert self.memory.rebuilt().state() == self.memory.registry.state()

    @invariant()
    def compaction_changes_nothing_that_is_seen(self) -> None:
        rebuilt = self.memory.rebuilt(self.memory.compacted())
        for target in ("/schemas?deleted=true", "/subjects?deleted=true", "/config"):
            assert answer(rebuilt, "GET", target).body == answer(self.memory.registry, "GET", target).body


TestStories = Stories.TestCase
TestStories.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_subject_that_was_cleared_is_gone() -> None:
    memory = RegistryInMemory()
    memory.ask("POST", "/subjects/s/versions", {"schema": '"int"'})
    memory.ask("POST", "/subjects/other/versions", {"schema": '"int"'})
    cleared = Record(b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}', b'{"subject":"s"}')
    memory.registry.replay(cleared)
    assert memory.ask("GET", "/subjects") == (200, ["other"])
    assert memory.ask("GET", "/subjects/s/versions")[0] == 404


def test_an_override_counts_more_than_the_mode_of_a_subject() -> None:
    memory = RegistryInMemory()
    memory.ask("PUT", "/mode/s", {"mode": "READWRITE"})
    assert memory.registry.mode_for("s") == "READWRITE"
    memory.ask("PUT", "/mode", {"mode": "READONLY"})
    assert [memory.registry.mode_for(subject) for subject in ("s", "t")] == ["READWRITE", "READONLY"]
    memory.ask("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
    assert [memory.registry.mode_for(subject) for subject in ("s", "t")] == ["READONLY_OVERRIDE"] * 2


def test_a_schema_is_compatible_with_the_latest_of_a_subject_without_any() -> None:
    memory = RegistryInMemory()
    status, body = memory.ask("POST", "/compatibility/subjects/s/versions/latest", {"schema": '"int"'})
    assert (status, body["is_compatible"]) == (200, True)
    status, _ = memory.ask("POST", "/compatibility/subjects/s/versions/1", {"schema": '"int"'})
    assert status == 404


def test_a_reference_to_the_latest_version_means_the_newest_that_is_not_deleted() -> None:
    memory = RegistryInMemory()
    point = '{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "%s"}]}'
    memory.ask("PUT", "/config", {"compatibility": "NONE"})
    for kind in ("int", "long", "string"):
        memory.ask("POST", "/subjects/point/versions", {"schema": point % kind})
    memory.ask("DELETE", "/subjects/point/versions/3")
    line = {"type": "record", "name": "Line", "fields": [{"name": "from", "type": "Point"}]}
    references = [{"name": "Point", "subject": "point", "version": -1}]
    body = {"schema": json.dumps(line), "references": references}
    assert memory.ask("POST", "/subjects/line/versions", body)[0] == 200
    parsed = memory.registry.parsed(memory.registry.version("line", 1).schema)
    assert '"long"' in parsed.canonical or "long" in repr(parsed)


def test_the_same_text_with_other_references_is_another_schema() -> None:
    memory = RegistryInMemory()
    memory.ask("PUT", "/config", {"compatibility": "NONE"})
    point = '{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "%s"}]}'
    for subject, kind in (("p", "int"), ("q", "long")):
        memory.ask("POST", f"/subjects/{subject}/versions", {"schema": point % kind})
    line = '{"type": "record", "name": "Line", "fields": [{"name": "from", "type": "Point"}]}'
    answers = [
        memory.ask(
            "POST",
            "/subjects/line/versions",
            {"schema": line, "references": [{"name": "Point", "subject": subject, "version": 1}]},
        )
        for subject in ("p", "q", "p")
    ]
    ids = [answer[1]["id"] for answer in answers]
    assert ids[0] == ids[2] != ids[1]
    assert memory.ask("GET", "/subjects/line/versions") == (200, [1, 2])
