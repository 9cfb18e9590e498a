"""Pages as text: links lead somewhere, and prose is wrapped so that a diff shows what changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 100
GENERATED = ("docs/reference/",)  # from the code, by tools/make_reference.py
LINK = re.compile(r"(?<!\\)\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
FENCED = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)


def pages() -> list[str]:
    found = [*ROOT.glob("*.md"), *(ROOT / "tests").glob("*.md")]
    for folder in ("docs", "examples"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def without_blocks(text: str) -> str:
    """The same lines, those of fenced blocks empty."""
    return FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)


def anchors(text: str) -> set[str]:
    """What GitHub calls the headings of a page."""
    found: set[str] = set()
    for heading in HEADING.findall(without_blocks(text)):
        words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = base = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = 0
        while name in found:
            count += 1
            name = f"{base}-{count}"
        found.add(name)
    return found


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    broken = []
    for target in LINK.findall(without_blocks(text)):
        if re.match(r"[a-z]+:", target):
            continue  # an address elsewhere: no test asks the network
        path, _, anchor = target.partition("#")
        linked = (ROOT / page).parent / path if path else ROOT / page
        if not linked.exists():
            broken.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(linked.read_text()):
            broken.append(f"{target}: no such heading")
    assert not broken, f"{page}: {broken}"


@pytest.mark.parametrize("page", [page for page in pages() if not page.startswith(GENERATED)])
def test_prose_is_wrapped(page: str) -> None:
    """Tables, blocks, footnotes and a lone link cannot be wrapped."""
    lines = without_blocks((ROOT / page).read_text()).splitlines()
    long = [
        number
        for number, line in enumerate(lines, 1)
        if len(line) > WIDTH and not line.lstrip().startswith(("|", "[^", "![", "<")) and " " in line.strip()
    ]
    assert not long, f"{page}: lines {long} are longer than {WIDTH} columns"
