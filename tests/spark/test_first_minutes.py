"""What a new user does first: `headrace up --sample clicks`, `headrace spark`, and one line of it."""

from __future__ import annotations

from cli.running import Up
from cli.shell import COMMAND, Shell
from harness.spark_cluster import environment
from harness.wait import run_to_end

FIRST_LOOK = """\
spark.read.format("headrace").option("valueFormat", "json").load("clicks").show()
impressions = spark.read.format("headrace").option("valueFormat", "json").load("impressions")
print([f"{name} {kind}" for name, kind in impressions.dtypes if not name.startswith("_")])
print("impressions", impressions.count())

from pyspark.sql.functions import udf

@udf("string")
def shouted(text):
    return text.upper()

print(impressions.limit(1).select(shouted("impression").substr(1, 3)).first()[0])

from headrace.cli.spark_errors import sentence_of
try:
    spark.read.format("headrace").option("valueFormat", "json").load("mine").show()
except Exception as error:
    print(sentence_of(error))
spark.read.format("headrace").load("clocks").show()
"""

CLICK = ["click", "impression", "ad", "user", "clicked_at"]


def test_the_first_look_has_columns_and_nothing_else_is_said(tmp_path):
    """One line shows a table; mistakes that come next are told in a sentence, without a traceback."""
    shell = Shell("")
    up = Up(shell, tmp_path / "data", "--sample", "clicks")
    try:
        word, bootstrap = up.line.split()
        assert word == "ready"
        shell("produce", "mine", "--create", "-b", bootstrap, stdin=b'{"a": 1}\n{"a"\n')
        done = run_to_end(
            [*COMMAND, "spark", "-b", bootstrap, "-c", "spark.ui.enabled=false"],
            input=FIRST_LOOK,
            env=environment(),
        )
        assert up.stop() == 0
    finally:
        shell.end()
    table, rest = done.stdout.split("only showing top 20 rows\n")
    lines = table.splitlines()
    columns = [cell.strip() for cell in lines[1].strip("|").split("|")]
    assert columns[:5] == CLICK
    assert len(lines) == 20 + 4
    assert all(line.startswith("|c-0") for line in lines[3:-1])
    types, counted, shouted, refused = rest.splitlines()
    assert types == str(
        ["impression string", "ad string", "user string", "shown_at string", "site string", "price double"]
    )
    assert int(counted.removeprefix("impressions ")) > 10_000
    assert shouted == "I-0"
    assert refused.startswith(
        "the record at offset 1 of partition mine-0 cannot be decoded: value: not valid JSON"
    )
    assert done.stderr == (
        f"Error: <stdin>, line {len(FIRST_LOOK.splitlines())}: topic 'clocks' does not exist: check the "
        "name, or create it first.\n"
    )
    assert done.returncode == 1
