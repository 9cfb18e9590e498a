"""Protobuf without its compiler: text, descriptors, and protobuf's own opinion of both."""

from __future__ import annotations

import base64

from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2, timestamp_pb2, type_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.schema_formats.protobuf.schema import parse, text_of
from headrace.schema_formats.schema import InvalidSchema

TEXT = r"""
syntax = "proto2";  // comments
package a.b;        /* of both
                       kinds */
import "google/protobuf/timestamp.proto";
import public "google/protobuf/struct.proto";
option java_package = "com.example";
option (custom) = { a: 1 b: "}" };
message Outer {
  required string name = 1 [default = "x\n\"y\"", deprecated = true];
  optional int32 number = 0x10 [default = -5];
  repeated sint64 packed = 3 [packed = true];
  optional .a.b.Outer.Inner inner = 4;
  map<int32, Inner> by_number = 5;
  oneof choice { Kind kind = 6; google.protobuf.Timestamp at = 7; google.protobuf.NullValue none = 8; }
  message Inner { optional Outer back = 1; enum Deep { D = -1; } optional Deep deep = 2; }
  reserved 100 to max;
  extensions 50 to 60;
  option (mine).x = true;
}
enum Kind { option allow_alias = true; ZERO = 0; NONE = 0; ONE = 1 [(note) = "n"]; }
extend Outer { optional int32 more = 50; }
service S { rpc Do (Outer) returns (stream Outer) { option deadline = 3; } }
"""


def pool_of(data: bytes) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, struct_pb2):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
    return pool


def test_protobuf_itself_takes_our_descriptor() -> None:
    parsed = parse(TEXT)
    assert parsed.name == "a.b.Outer"
    outer = pool_of(parsed.descriptor).FindMessageTypeByName("a.b.Outer")
    fields = outer.fields_by_name
    assert fields["name"].is_required
    assert fields["name"].default_value == 'x\n"y"'
    assert (fields["number"].number, fields["number"].default_value) == (16, -5)
    assert fields["packed"].GetOptions().packed
    assert fields["inner"].message_type.fields_by_name["back"].message_type is outer
    assert fields["inner"].message_type.fields_by_name["deep"].enum_type.full_name == "a.b.Outer.Inner.Deep"
    assert fields["by_number"].message_type.GetOptions().map_entry
    assert [field.name for field in outer.oneofs_by_name["choice"].fields] == ["kind", "at", "none"]
    assert outer.file.GetOptions().java_package == "com.example"


def test_protobufs_own_files_are_understood() -> None:
    """What protoc made of Google's own files, as text and back again, is the same to protobuf."""
    for module in (timestamp_pb2, struct_pb2, descriptor_pb2, type_pb2):
        file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        encoded = base64.b64encode(module.DESCRIPTOR.serialized_pb).decode()
        known = {"google/protobuf/any.proto", "google/protobuf/source_context.proto"}
        imports = [
            (name, base64.b64encode(_file(name)).decode()) for name in file.dependency if name in known
        ]
        if file.name == "google/protobuf/type.proto":
            imports = [(name, text) for name, text in imports if name != "google/protobuf/any.proto"]
        parsed = parse(encoded, imports)
        again = parse(text_of(encoded), imports, path=file.name)
        assert parsed.canonical == again.canonical
        ours = descriptor_pb2.FileDescriptorProto.FromString(parsed.descriptor)
        assert [each.name for each in ours.message_type] == [each.name for each in file.message_type]
        for one, other in zip(ours.message_type, file.message_type, strict=True):
            assert [(f.name, f.number, f.label, f.type, f.type_name) for f in one.field] == [
                (f.name, f.number, f.label, f.type, f.type_name) for f in other.field
            ]


def _file(name: str) -> bytes:
    from google.protobuf import any_pb2, source_context_pb2

    for module in (any_pb2, source_context_pb2):
        if module.DESCRIPTOR.name == name:
            data: bytes = module.DESCRIPTOR.serialized_pb
            return data
    raise AssertionError(name)


def test_text_and_descriptor_are_one_schema() -> None:
    plain = (
        TEXT.partition("  reserved")[0] + "}\nenum Kind { option allow_alias = true; ZERO = 0; NONE = 0; }"
    )
    plain = plain.replace('option (custom) = { a: 1 b: "}" };', "")
    parsed = parse(plain)
    again = parse(base64.b64encode(parsed.descriptor).decode())
    assert again.canonical == parsed.canonical
    assert parse(text_of(base64.b64encode(parsed.descriptor).decode())).canonical == parsed.canonical


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 300))
def test_garbage_is_refused_and_nothing_else(data: bytes, cut: int) -> None:
    whole = parse(TEXT).descriptor
    for broken in (data, whole[:cut] + data + whole[cut:]):
        try:
            parsed = parse(base64.b64encode(broken).decode())
        except InvalidSchema:
            continue
        assert parse(base64.b64encode(parsed.descriptor).decode()).canonical == parsed.canonical


@settings(max_examples=150, deadline=None)
@given(st.text("{}[]()<>;=,\"'0129xamp_ .\n/-", max_size=40), st.integers(0, len(TEXT)))
def test_broken_text_is_refused_and_nothing_else(garbage: str, cut: int) -> None:
    try:
        parsed = parse(TEXT[:cut] + garbage + TEXT[cut:])
    except InvalidSchema:
        return
    assert parse(parsed.canonical).canonical == parsed.canonical


def test_what_is_printed_keeps_the_order_of_fields_and_of_what_protoc_counts() -> None:
    text = """syntax = "proto3";

message Outer {
  string a = 1;
  oneof either {
    string b = 2;
    string c = 3;
  }
  message First {
    map<string, int32> inside = 1;
    message Third {
    }
  }
  map<string, .Outer.First> firsts = 4;
  message Second {
  }
  string d = 5;
}
"""
    made = parse(text)
    descriptor = descriptor_pb2.FileDescriptorProto.FromString(made.descriptor).message_type[0]
    assert [field.name for field in descriptor.field] == ["a", "b", "c", "firsts", "d"]
    assert [nested.name for nested in descriptor.nested_type] == ["First", "FirstsEntry", "Second"]
    assert [nested.name for nested in descriptor.nested_type[0].nested_type] == ["InsideEntry", "Third"]
    assert text_of(base64.b64encode(made.descriptor).decode()) == text.replace(
        "  message Second {\n  }\n  string d = 5;\n", "  string d = 5;\n  message Second {\n  }\n"
    )
