"""README.md and docs/ say what happens: their commands and blocks of Python run, from top to bottom."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import headrace
from docs.fenced import (
    NOT_RUN,
    ROOT,
    RUN,
    SHOWN,
    SPARK_SECTIONS,
    STORIES,
    Block,
    blocks_of,
    pages,
    reason_not_to_run,
    to_run,
)
from harness.page_reader import Reader
from headrace.schema_formats.schema import SchemaType
from headrace.schemas import Registry, Schema
from headrace.schemas.dead_letters import dead_letter
from headrace.testing import Broker

HERE = "tests/docs/test_pages.py"
WITH_BLOCKS = [page for page in pages() if to_run(page)]


def things_to_administer(reader: Reader) -> None:
    """What docs/cli.md shows commands for: a dead letter that can be sent again, a group, some schemas."""
    bootstrap = reader.bootstrap
    with headrace.Admin(bootstrap) as admin:
        for topic in ("clicks", "clicks-dead"):
            admin.create_topic(topic, partitions=1)
    letter = dead_letter(
        "not a JSON object",
        topic="clicks",
        partition=0,
        offset=0,
        timestamp_ms=time.time_ns() // 1_000_000,
        key=None,
        value=b"\xff",
    )
    with headrace.Producer(bootstrap) as producer:
        producer.send("clicks-dead", letter.value, letter.key, headers=letter.record_headers())
    with headrace.Consumer(bootstrap, group_id="readers") as consumer:
        consumer.assign({("clicks", 0): 0})
        consumer.commit({("clicks", 0): 0})
    registry = Registry(f"http://{reader.registry}")
    for text in ('"int"', '"long"'):
        registry.register("clicks-value", Schema(text))
    money = 'syntax = "proto3"; message Money { int64 cents = 1; }'
    registry.register("money", Schema(money, SchemaType.PROTOBUF))
    (reader.place / "order.proto").write_text(
        'syntax = "proto3"; import "money.proto"; message Order { Money price = 1; }'
    )


TAKEN_FOR_GRANTED = {"docs/cli.md": things_to_administer}


@pytest.mark.timeout(600)  # dozens of commands, on a machine that may have other work
@pytest.mark.parametrize("page", [page for page, test in STORIES.items() if test == HERE])
def test_a_page_does_what_it_says(page: str, tmp_path: Path, headrace_broker: Broker) -> None:
    """One that starts no broker of its own has one, at `servers`."""
    (tmp_path / ".config" / "fish" / "completions").mkdir(parents=True)
    prepare = TAKEN_FOR_GRANTED.get(page)
    with Reader(tmp_path, prepare, servers=headrace_broker.bootstrap_servers) as reader:
        reader.meet(headrace_broker.bootstrap_servers)
        reader.follow(to_run(page, with_spark=False))


# --- nothing is left out ---------------------------------------------------------------------------------


def test_every_page_with_blocks_has_a_test_that_follows_it() -> None:
    assert sorted(STORIES) == WITH_BLOCKS
    for page, test in STORIES.items():
        text = (ROOT / test).read_text()
        assert "to_run(" in text, f"{test} does not run the blocks of {page}"
        assert test == HERE or Path(page).name in text, f"{test} does not name {page}"


@pytest.mark.parametrize("page", pages())
def test_every_fence_says_what_it_is(page: str) -> None:
    for block in blocks_of(page):
        assert block.language in RUN + SHOWN, f"{block.where}: write `console`, with `$ ` before a command"
        if block.language in SHOWN:
            assert not re.search(r"^(\$|>>>) ", block.text, re.MULTILINE), f"{block.where} is a console"


def test_sections_with_spark_are_there() -> None:
    for page, sections in SPARK_SECTIONS.items():
        assert set(sections) <= {block.section for block in to_run(page)}
        assert f'"{page}"' in (ROOT / "tests" / "spark" / "test_page.py").read_text()


def test_what_is_not_run_is_little_and_still_there() -> None:
    commands = [
        command
        for page in WITH_BLOCKS
        for block in to_run(page)
        if block.language == "console"
        for command, _ in block.commands()
    ]
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, command) for command in commands), f"{pattern} is not needed"
    left_out = [command for command in commands if reason_not_to_run(command)]
    assert len(left_out) <= 14, left_out


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{page}: {target}"


# --- the reader itself -----------------------------------------------------------------------------------


def console(text: str) -> Block:
    return Block("a page", 1, "", "console", text)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("$ echo one two\none two\n", True),
        ("$ echo one    two\none two\n", True),
        ("$ echo one\ntwo\n", False),
        ("$ echo one\n", True),
        ("$ printf 'a\\nb\\nc\\n'\na\n…\nc\n", True),
        ("$ printf 'a\\nb\\n'\na\n", False),
        ("$ echo at 2026-01-02T03:04:05Z\nat 2030-12-31T00:00:00.123Z\n", True),
        ("$ echo 3 records\n4 records\n", False),
        ("$ echo 3 records of 10 KiB\n3 records of 99.5 KiB\n", True),
        ("$ false\n", False),
        ("$ echo Error: no >&2; false\nError: no\n", True),
        ("$ echo a \\\n> b\na b\n", True),
        ("$ echo a  # a remark\na\n", True),
    ],
)
def test_the_reader_compares(text: str, passes: bool, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        if passes:
            reader.follow([console(text)])
        else:
            with pytest.raises(AssertionError, match="a page:1"):
                reader.follow([console(text)])


def test_the_reader_runs_python_and_knows_the_pages_line(tmp_path: Path) -> None:
    with Reader(tmp_path, known=1) as reader:
        reader.follow([Block("a page", 7, "", "python", "made = known + 1\nprint(made)\n", "2\n")])
        reader.follow([Block("a page", 9, "", "python", "# saved.py\nmade = 5\n")])
        reader.follow([Block("a page", 12, "", "python", "from saved import made\nassert made == 5\n")])
        with pytest.raises(AssertionError, match="printed:\n5"):
            reader.follow([Block("a page", 14, "", "python", "print(made)\n", "6\n")])
        with pytest.raises(ZeroDivisionError) as raised:
            reader.follow([Block("a page", 20, "", "python", "\n1 / 0\n")])
    assert raised.traceback[-1].lineno + 1 == 22
