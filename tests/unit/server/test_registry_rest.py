"""Every route of the registry's REST interface, with what Confluent's registry answers there."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from harness.registry_in_memory import RegistryInMemory
from headrace.server.registry_rest import answer

PROTO = 'syntax = "proto3";\n\nmessage M {\n  int32 x = 1;\n}\n'
RECORD = '{"type": "record", "name": "R", "fields": [{"name": "s", "type": "S"}]}'
S = '{"type": "enum", "name": "S", "symbols": ["A"]}'


@pytest.fixture
def memory() -> RegistryInMemory:
    """Ids: orders 1, which is deleted, and 2; shared 1; proto 3; s 4; user 5, which refers to s."""
    memory = RegistryInMemory()

    def register(subject: str, text: str, kind: str = "AVRO", **more: Any) -> int:
        body = {"schema": text, "schemaType": kind, **more}
        status, reply = memory.ask("POST", f"/subjects/{subject}/versions", body)
        assert status == 200, reply
        return int(reply["id"])

    ids = [
        register("orders", '"int"'),
        register("orders", '"long"'),
        register("shared", '"int"'),
        register("proto", PROTO, "PROTOBUF"),
        register("s", S),
        register("user", RECORD, references=[{"name": "S", "subject": "s", "version": 1}]),
    ]
    assert ids == [1, 2, 1, 3, 4, 5]
    assert memory.ask("DELETE", "/subjects/orders/versions/1") == (200, 1)
    return memory


@pytest.mark.parametrize(
    ("target", "reply"),
    [
        ("/", {}),
        ("/schemas/types", ["JSON", "PROTOBUF", "AVRO"]),
        ("/contexts", ["."]),
        ("/schemas/ids/1/subjects", ["shared"]),
        ("/schemas/ids/1/subjects?deleted=true", ["orders", "shared"]),
        ("/schemas/ids/1/versions", [{"subject": "shared", "version": 1}]),
        (
            "/schemas/ids/1/versions?deleted=true",
            [{"subject": "orders", "version": 1}, {"subject": "shared", "version": 1}],
        ),
        ("/schemas/ids/2/schema", "long"),
        ("/subjects/orders/versions/latest/schema", "long"),
        ("/subjects/orders/versions/1/schema?deleted=true", "int"),
        ("/subjects", ["orders", "proto", "s", "shared", "user"]),
        ("/subjects?subjectPrefix=s", ["s", "shared"]),
        ("/subjects?offset=1&limit=2", ["proto", "s"]),
        ("/subjects?offset=-1&limit=-1", ["orders", "proto", "s", "shared", "user"]),
        ("/subjects/orders/versions", [2]),
        ("/subjects/orders/versions?deleted=true", [1, 2]),
        ("/subjects/orders/versions?deletedOnly=true", [1]),
        ("/subjects/s/versions/1/referencedby", [5]),
        ("/subjects/user/versions/1/referencedby", []),
        ("/config", {"compatibilityLevel": "BACKWARD"}),
        ("/config/orders?defaultToGlobal=true", {"compatibilityLevel": "BACKWARD"}),
        ("/mode", {"mode": "READWRITE"}),
        ("/mode/orders?defaultToGlobal=true", {"mode": "READWRITE"}),
        (
            "/v1/metadata/id",
            {"scope": {"path": [], "clusters": {"schema-registry-cluster": "headrace"}}, "id": ""},
        ),
    ],
)
def test_what_is_read(memory: RegistryInMemory, target: str, reply: Any) -> None:
    assert memory.ask("GET", target) == (200, reply)
    assert memory.ask("HEAD", target) == (200, reply)


def test_a_schema_by_its_id_and_by_its_guid(memory: RegistryInMemory) -> None:
    status, shown = memory.ask("GET", "/schemas/ids/5?fetchMaxId=true")
    guid = shown.pop("guid")
    assert (status, shown) == (
        200,
        {"schema": RECORD, "references": [{"name": "S", "subject": "s", "version": 1}], "maxId": 5},
    )
    status, found = memory.ask("GET", f"/schemas/guids/{guid}")
    assert (status, found["id"], found["schema"]) == (200, 5, RECORD)
    assert memory.ask("GET", f"/schemas/guids/{guid}/ids") == (200, [{"context": ".", "id": 5}])
    assert memory.ask("GET", "/schemas/guids/nobody")[1]["error_code"] == 40403
    assert "maxId" not in memory.ask("GET", "/schemas/ids/5")[1]


def test_all_schemas(memory: RegistryInMemory) -> None:
    def listed(query: str) -> list[tuple[str, int]]:
        return [(one["subject"], one["version"]) for one in memory.ask("GET", f"/schemas{query}")[1]]

    rest = [("proto", 1), ("s", 1), ("shared", 1), ("user", 1)]
    assert listed("") == [("orders", 2), *rest]
    assert listed("?deleted=true") == [("orders", 1), ("orders", 2), *rest]
    assert listed("?deleted=true&latestOnly=true") == [("orders", 2), *rest]
    assert listed("?subjectPrefix=s") == [("s", 1), ("shared", 1)]
    assert listed("?offset=1&limit=1") == [("proto", 1)]


def test_a_descriptor_instead_of_the_text(memory: RegistryInMemory) -> None:
    (shown,) = [one for one in memory.ask("GET", "/schemas")[1] if one["subject"] == "proto"]
    assert (shown["schemaType"], shown["schema"]) == ("PROTOBUF", PROTO)
    serialized = memory.ask("GET", "/schemas/ids/3?format=serialized")[1]["schema"]
    assert b"x" in base64.b64decode(serialized)
    assert memory.ask("GET", "/schemas/ids/2?format=serialized")[1]["schema"] == '"long"'


def test_a_schema_is_looked_up(memory: RegistryInMemory) -> None:
    status, found = memory.ask("POST", "/subjects/orders", {"schema": '"long"'})
    assert (status, found["id"], found["version"], found["subject"]) == (200, 2, 2, "orders")
    assert memory.ask("POST", "/subjects/orders", {"schema": '"int"'})[1]["error_code"] == 40403
    status, found = memory.ask("POST", "/subjects/orders?deleted=true", {"schema": '"int"'})
    assert (status, found["version"]) == (200, 1)
    assert memory.ask("POST", "/subjects/nobody", {"schema": '"int"'})[1]["error_code"] == 40401


def test_compatibility_is_asked(memory: RegistryInMemory) -> None:
    target = "/compatibility/subjects/orders/versions"
    for path in (target, f"{target}/latest", f"{target}/2"):
        assert memory.ask("POST", path, {"schema": '"double"'}) == (200, {"is_compatible": True})
        assert memory.ask("POST", path, {"schema": '"string"'}) == (200, {"is_compatible": False})
    status, reply = memory.ask("POST", f"{target}?verbose=true", {"schema": '"string"'})
    assert (status, reply["is_compatible"], len(reply["messages"]) > 0) == (200, False, True)
    status, reply = memory.ask("POST", f"{target}?verbose=true", {"schema": '"double"'})
    assert reply == {"is_compatible": True, "messages": []}


def test_levels_and_modes_are_set_and_unset(memory: RegistryInMemory) -> None:
    assert memory.ask("PUT", "/config/orders", {"compatibility": "none"}) == (200, {"compatibility": "NONE"})
    assert memory.ask("GET", "/config/orders") == (200, {"compatibilityLevel": "NONE"})
    assert memory.ask("POST", "/subjects/orders/versions", {"schema": '"string"'})[0] == 200
    assert memory.ask("DELETE", "/config/orders") == (200, {"compatibilityLevel": "NONE"})
    assert memory.ask("GET", "/config/orders")[1]["error_code"] == 40408
    assert memory.ask("PUT", "/config", {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert memory.ask("GET", "/config") == (200, {"compatibilityLevel": "FULL"})
    levels: list[object] = ["x", None, 1, [], {}]
    for level in levels:
        assert memory.ask("PUT", "/config", {"compatibility": level})[1]["error_code"] == 42203

    assert memory.ask("PUT", "/mode/orders", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert memory.ask("POST", "/subjects/orders/versions", {"schema": '"bytes"'})[1]["error_code"] == 42205
    assert memory.ask("DELETE", "/mode/orders") == (200, {"mode": "READONLY"})
    assert memory.ask("GET", "/mode/orders")[1]["error_code"] == 40409


def test_what_is_deleted_first_softly_then_for_good(memory: RegistryInMemory) -> None:
    def code(method: str, target: str) -> Any:
        return memory.ask(method, target)[1]["error_code"]

    assert code("DELETE", "/subjects/s") == 42206, "user refers to it"
    assert code("DELETE", "/subjects/shared?permanent=true") == 40405
    assert code("DELETE", "/subjects/shared/versions/1?permanent=true") == 40407
    assert memory.ask("DELETE", "/subjects/shared") == (200, [1])
    assert code("DELETE", "/subjects/shared") == 40404
    assert memory.ask("GET", "/subjects?deletedOnly=true") == (200, ["shared"])
    assert memory.ask("DELETE", "/subjects/shared?permanent=true") == (200, [1])
    assert code("GET", "/subjects/shared/versions") == 40401
    assert code("DELETE", "/subjects/orders/versions/1") == 40406
    assert memory.ask("DELETE", "/subjects/orders/versions/1?permanent=true") == (200, 1)
    assert code("DELETE", "/subjects/orders/versions/1?permanent=true") == 40402
    assert code("GET", "/subjects/orders/versions/9") == 40402


def test_a_subject_needs_a_name_and_a_body_is_json(memory: RegistryInMemory) -> None:
    assert memory.ask("POST", "/subjects/%20/versions", {"schema": '"int"'})[1]["error_code"] == 42208
    broken = answer(memory.registry, "POST", "/subjects/s/versions", b"{")
    assert (broken.status, json.loads(broken.body)["error_code"]) == (400, 400)
    assert memory.ask("DELETE", "/schemas/types")[1]["message"].endswith("GET /schemas/types")
