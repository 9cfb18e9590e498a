"""Every Python block of docs/spark.md runs, one behind the other, in a program of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", re.DOTALL)


def test_the_page_runs(servers, admin, producer, tmp_path):
    admin.create_topic("clicks", partitions=1)
    for number in range(10):
        producer.send("clicks", b'{"ad": "a%d", "price": %.1f}' % (number % 3, number / 2))
    producer.flush()
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 6
    program = tmp_path / "page.py"
    known = f"servers, directory = {servers!r}, {str(tmp_path)!r}\n"
    program.write_text(known + "\n".join(block for block, _ in blocks))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    for _, expected in blocks:
        assert expected.strip() in done.stdout
