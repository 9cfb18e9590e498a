"""The whole system in a few minutes: three brokers, a generator of ad clicks, the pipeline that counts them,
and a table that is filled from its results. `make demo` runs it.

In the middle one of the brokers is killed with -9, and later the Spark driver with all its processes. At the
end the counts, in the topic and in the table, must be those that the generator's own truth says.
"""

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import click
import demo_chart
from demo_counts import Verdict
from demo_processes import ProgramEnded
from demo_screen import Screen
from demo_stage import FAST, WHOLE, Size, Stage, Stuck

import headrace
from headrace.spark.prerequisites import MissingPrerequisite, check_prerequisites

NEXT = """
What to try next
  headrace up --sample clicks     a broker with such clicks, as long as you like; --brokers 3 for a cluster
  headrace spark                  a PySpark shell on it: spark.read.format("headrace").load("clicks").show()
  examples/ad_clicks/README.md    this pipeline, step by step
  docs/spark-tutorial.md          from nothing to an exactly-once pipeline of your own
  headrace demo                   the broker alone: a million records, kill -9, nothing lost"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--fast", is_flag=True, help="Fewer events and a faster clock.")
@click.option("--seed", default=7, show_default=True, help="Other events.")
@click.option(
    "--chart",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("demo.svg"),
    show_default=True,
    help="Where the chart goes.",
)
@click.option("--keep", is_flag=True, help="Leave logs, topics and checkpoints behind.")
@click.option("--json", "as_json", is_flag=True, help="Print facts, and nothing else.")
def main(fast: bool, seed: int, chart: Path, keep: bool, as_json: bool) -> None:
    """Count ad clicks with Spark, exactly once, while a broker and the driver are killed with -9."""
    try:
        check_prerequisites()
    except MissingPrerequisite as error:
        raise click.ClickException(str(error)) from error
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # unwinds, as Ctrl-C does
    with Screen(is_quiet=as_json) as screen, workplace(keep=keep) as directory:
        facts = show(screen, directory, FAST if fast else WHOLE, seed, chart)
    if as_json:
        click.echo(json.dumps(facts))


@contextmanager
def workplace(*, keep: bool) -> Iterator[Path]:
    """A directory for all that the demo makes; it stays if it is wanted, or if it may say what went wrong."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        yield directory
    except (click.ClickException, headrace.ClientError, ProgramEnded, Stuck) as error:
        reason = error.message if isinstance(error, click.ClickException) else str(error)
        raise click.ClickException(f"{reason}\nAll logs are in {directory}.") from error
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory, ignore_errors=True)
        raise
    if keep:
        click.echo(f"Logs and data are kept in {directory}.", err=True)
    else:
        shutil.rmtree(directory, ignore_errors=True)


def show(screen: Screen, directory: Path, size: Size, seed: int, chart: Path) -> dict[str, object]:
    """The story from the first start to the verdict, and its facts."""
    with ExitStack() as stack:
        stage = Stage(stack, screen, directory, size, seed)
        stage.set_up()
        kills = [stage.kill_broker(), stage.kill_driver()]
        stage.finish()
        verdict = Verdict.of(stage.truth, stage.counts, stage.table, stage.servers)
        run = demo_chart.Run(stage.watch.samples, kills, *verdict.clicks_per_minute)
    chart.parent.mkdir(parents=True, exist_ok=True)
    chart.write_text(demo_chart.svg(run))
    for line in ("", *demo_chart.lines(run), "", *verdict.lines(), ""):
        screen.say(line)
    if problems := verdict.problems():
        raise click.ClickException("The counts are wrong:\n" + "\n".join(problems))
    screen.say(
        "Equal: no click is lost or counted twice, in the topic and in the table.", fg="green", bold=True
    )
    screen.say(f"The chart is in {chart}.")
    screen.say(NEXT)
    return {
        **verdict.facts(),
        "kills": [asdict(kill) for kill in kills],
        "events": len(stage.generator.events),
        "batches": stage.watch.last.batch + 1,
        "restarts": stage.restarts,  # of a pipeline that ended by itself
        "seconds": round(run.seconds, 1),
        "chart": str(chart),
    }


if __name__ == "__main__":
    main()
