"""Format strings, JSON lines: records on their way from and to text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.formats import compile_format
from headrace.cli.lines import LINE_BYTES_MAX, LineTooLong, read_lines
from headrace.records._messages import Message
from headrace.records.json_lines import read_json_line, write_json_line

HEADERS = (("a", b"1"), ("b", None))
RECORD = Message("orders", 2, 17, 1_767_225_600_000, key=b"k1", value=b"v\xff", headers=HEADERS)
EMPTY = Message("orders", 0, 0)

header_names = st.text(st.characters(codec="utf-8"), max_size=10)
maybe_bytes = st.none() | st.binary(max_size=30) | st.text(max_size=10).map(str.encode)


class TestFormats:
    @pytest.mark.parametrize(
        ("text", "rendered"),
        [
            (r"%s\n", b"v\xff\n"),
            ("%t [%p] %o", b"orders [2] 17"),
            ("%k=%s", b"k1=v\xff"),
            ("%K %S %R", b"2 2 2"),
            ("%T|%I", b"1767225600000|2026-01-01T00:00:00.000Z"),
            ("%h", b"a=1,b=NULL"),
            ("100%%", b"100%"),
            (r"\t\x41\0\\", b"\tA\0\\"),
            ("", b""),
            ("größe", "größe".encode()),
        ],
    )
    def test_letters(self, text: str, rendered: bytes) -> None:
        assert compile_format(text)(RECORD) == rendered

    def test_nulls_are_empty_and_have_length_minus_one(self) -> None:
        assert compile_format("[%k|%s|%h|%K|%S|%R|%I]")(EMPTY) == b"[|||-1|-1|0|]"

    @pytest.mark.parametrize("text", ["%x", "100%", r"\q", "end\\"])
    def test_what_means_nothing_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="use"):
            compile_format(text)

    def test_a_header_name_that_is_no_utf8_keeps_its_bytes(self) -> None:
        name = b"\xff".decode("utf-8", "surrogateescape")
        assert compile_format("%h")(Message("orders", 0, 0, headers=((name, b"v"),))) == b"\xff=v"


class TestJsonLines:
    def test_text_is_text_and_other_bytes_are_base64(self) -> None:
        assert json.loads(write_json_line(RECORD)) == {
            "topic": "orders",
            "partition": 2,
            "offset": 17,
            "timestamp": 1_767_225_600_000,
            "key": "k1",
            "value": {"base64": "dv8="},
            "headers": [["a", "1"], ["b", None]],
        }

    @settings(max_examples=200, deadline=None)
    @given(maybe_bytes, maybe_bytes, st.lists(st.tuples(header_names, maybe_bytes), max_size=3))
    def test_what_consume_prints_produce_reads(
        self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> None:
        record = Message("t", 1, 2, 3, key=key, value=value, headers=tuple(headers))
        line = write_json_line(record)
        assert b"\n" not in line
        read = read_json_line(line)
        assert (read.key, read.value, read.headers) == (key, value, tuple(headers))
        assert (read.partition, read.timestamp_ms) == (1, 3)

    def test_a_header_name_that_is_no_utf8_is_still_json(self) -> None:
        name = b"\xff".decode("utf-8", "surrogateescape")
        assert read_json_line(write_json_line(Message("orders", 0, 0, headers=((name, b"v"),)))).headers == (
            (name, b"v"),
        )

    def test_handy_forms(self) -> None:
        read = read_json_line(b'{"value": {"id": 1, "ok": true}, "headers": {"a": "b"}}')
        assert read.value == b'{"id":1,"ok":true}'
        assert read.headers == (("a", b"b"),)
        assert read.key is None

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            (b"nope", "not JSON"),
            (b"\xff", "not JSON"),
            (b"[1]", "not an object"),
            (b'{"vlaue": "x"}', "unknown field 'vlaue'"),
            (b'{"partition": "1"}', "whole number"),
            (b'{"partition": true}', "whole number"),
            (b'{"headers": "a"}', "headers must be"),
            (b'{"headers": [["a"]]}', r"a header must be \[name, value\]"),
            (b'{"value": {"base64": "***"}}', "base64"),
            (b"[" * 100_000, "nested too deeply"),
        ],
    )
    def test_what_is_wrong_is_said(self, line: bytes, told: str) -> None:
        with pytest.raises(ValueError, match=told):
            read_json_line(line)


class TestLines:
    def lines_of(self, path: Path) -> list[bytes | None]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return list(read_lines(descriptor, 0.0))
        finally:
            os.close(descriptor)

    @settings(max_examples=100, deadline=None)
    @given(data=st.binary(max_size=60) | st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b""])).map(b"".join))
    def test_lines_are_what_lies_between_line_feeds(
        self, tmp_path_factory: pytest.TempPathFactory, data: bytes
    ) -> None:
        path = tmp_path_factory.mktemp("lines") / "in"
        path.write_bytes(data)
        expected = data.split(b"\n")
        if not expected[-1]:
            expected.pop()
        assert self.lines_of(path) == expected

    def test_lines_longer_than_one_read(self, tmp_path: Path) -> None:
        path = tmp_path / "in"
        path.write_bytes(b"a" * 700_000 + b"\n" + b"b" * 300_000)
        assert [len(line or b"") for line in self.lines_of(path)] == [700_000, 300_000]

    def test_a_line_without_end_is_refused_before_memory_runs_out(self, tmp_path: Path) -> None:
        path = tmp_path / "in"
        with path.open("wb") as file:
            file.truncate(LINE_BYTES_MAX + 1_000_000)
        with pytest.raises(LineTooLong):
            self.lines_of(path)

    def test_a_pipe_that_pauses_yields_a_pause(self) -> None:
        """What was read must be sent on, not kept until the next line comes."""
        reader, writer = os.pipe()
        try:
            os.write(writer, b"one\n")
            lines = read_lines(reader, 0.0)
            assert next(lines) == b"one"
            assert next(lines) is None
            os.write(writer, b"two\n")
            assert next(lines) == b"two"
            os.close(writer)
            assert [line for line in lines if line is not None] == []
        finally:
            os.close(reader)
