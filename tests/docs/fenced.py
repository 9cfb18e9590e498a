"""Every fenced block of README.md and of the pages under docs/ and examples/, and the test that runs it.

A page is a story: one reader follows its blocks from top to bottom (`harness/page_reader.py`), in one
directory, with one broker. A page with blocks that is not in `STORIES`, a language that is neither run nor
known to be a picture, and a command that `NOT_RUN` leaves out without need, each fail a test
(`test_pages.py`). So a block that is added to a page runs from then on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

RUN = ("python", "console", "yaml")  # YAML is a file that the page makes
SHOWN = ("", "json", "ini")  # output, layouts and files; `ini` is read by test_testing_page.py

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE_LINE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)

# page → the test that follows it
STORIES = {
    "README.md": "tests/docs/test_pages.py",
    "docs/cli.md": "tests/docs/test_pages.py",
    "docs/cluster.md": "tests/docs/test_pages.py",
    "docs/client/README.md": "tests/docs/test_pages.py",
    "docs/client/admin.md": "tests/docs/test_pages.py",
    "docs/client/migrating.md": "tests/docs/test_pages.py",
    "docs/client/offsets-in-a-database.md": "tests/docs/test_database_page.py",
    "docs/client/security.md": "tests/docs/test_client_security_page.py",
    "docs/jobs.md": "tests/docs/test_pages.py",
    "docs/lake.md": "tests/docs/test_pages.py",
    "docs/pipelines.md": "tests/spark/test_page.py",
    "docs/quotas.md": "tests/docs/test_pages.py",
    "docs/schemas.md": "tests/docs/test_pages.py",
    "docs/security.md": "tests/docs/test_security_page.py",
    "docs/spark-sink.md": "tests/spark/test_page.py",
    "docs/spark-tutorial.md": "tests/spark/test_page.py",
    "docs/spark.md": "tests/spark/test_page.py",
    "docs/testing.md": "tests/docs/test_testing_page.py",
    "examples/ad_clicks/README.md": "tests/spark/test_page.py",
    "examples/chat_fanout/README.md": "tests/examples/test_pages.py",
    "examples/judge/README.md": "tests/examples/test_pages.py",
    "examples/log_analytics/README.md": "tests/spark/test_page.py",
    "examples/metrics/README.md": "tests/spark/test_page.py",
    "examples/payments/README.md": "tests/examples/test_pages.py",
    "examples/ticket_queue/README.md": "tests/examples/test_pages.py",
    "examples/transcoding_queue/README.md": "tests/examples/test_pages.py",
}

# sections that need Spark, of pages that otherwise do not; tests/spark/test_page.py follows them
SPARK_SECTIONS = {
    "README.md": ("Five minutes with Spark",),
    "docs/lake.md": ("Tables of results, from Spark", "Table and topic as one, in Spark"),
    "examples/chat_fanout/README.md": ("Comments per second",),
    "examples/judge/README.md": ("The board with Spark",),
    "examples/payments/README.md": ("The ledger with Spark",),
    "examples/ticket_queue/README.md": ("The queue as a table",),
    "examples/transcoding_queue/README.md": ("The state of each clip",),
}

# command, as a pattern → why no reader of the tests runs it
NOT_RUN = {
    r"pip install .*": "the tests run in an environment that was installed this way",
    r"make (demo|test)\b.*": "tests/spark/test_demo.py runs the demo; the other one runs this",
    r"keytool .*": "a Java keystore is the reader's own",
    r"openssl .*": "a PKCS #12 file is the reader's own",
}


@dataclass(frozen=True)
class Block:
    """One fenced block; `expected` is the output that the page shows right below a block of Python."""

    page: str
    line: int
    section: str
    language: str
    text: str
    expected: str | None = None

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[tuple[str, str]]:
        """Of a console: each command line, with what the page says it prints."""
        found: list[tuple[str, str]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], ""))
            elif found and found[-1][0].endswith("\\"):
                found[-1] = (f"{found[-1][0]}\n{line.removeprefix('> ')}", "")
            else:
                assert found, f"{self.where}: a console begins with `$ `"
                found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
        return [(command.partition("  # ")[0].rstrip(), expected) for command, expected in found]


def pages() -> list[str]:
    paths = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        headings = HEADING.findall(text, 0, match.start())
        if (
            not match[1]
            and found
            and found[-1].language == "python"
            and not text[end : match.start()].strip()
        ):
            found[-1] = Block(**{**vars(found[-1]), "expected": match[2]})
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, headings[-1] if headings else "", match[1], match[2]))
        end = match.end()
    assert 2 * len(found) == len(FENCE_LINE.findall(text)), f"{page}: a fence that is indented or not closed"
    return found


def to_run(page: str, *, with_spark: bool | None = None) -> list[Block]:
    """The blocks that are run; of a page in two stories, those with or without Spark."""
    found = [block for block in blocks_of(page) if block.language in RUN]
    if with_spark is None:
        return found
    sections = SPARK_SECTIONS.get(page, ())
    return [block for block in found if (block.section in sections) == with_spark]


def reason_not_to_run(command: str) -> str | None:
    return next((why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, command)), None)
