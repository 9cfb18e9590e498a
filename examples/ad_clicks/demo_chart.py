"""The demo's chart, as an SVG file and as a few lines for a terminal.

Above, by the seconds of the run: how many events the pipeline was behind, with both kills. Below, by the
generator's own minutes: clicks as they were counted, and a mark on each bar where the truth is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil

from demo_watch import Kill, Sample

WIDTH, HEIGHT = 860, 440
LEFT, RIGHT = 64, 24
TERMINAL_WIDTH, TERMINAL_HEIGHT = 72, 4
MINUTE_MS = 60_000
BLOCKS = " ▁▂▃▄▅▆▇█"

# Both looks from one file: a page or a viewer that is dark says so.
STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #59636e }
  .title { font-size: 15px; font-weight: 600; fill: #1f2328 }
  .ground { fill: #ffffff; stroke: #d1d9e0 }
  .grid { stroke: #e4e8ec }
  .lag { fill: #218bff; fill-opacity: .22; stroke: #0969da; stroke-width: 1.6 }
  .bar { fill: #4ac26b }
  .truth { stroke: #1f2328; stroke-width: 2 }
  .away { fill: #cf222e; fill-opacity: .12 }
  .kill { stroke: #cf222e; stroke-width: 1.6 }
  .killed { fill: #cf222e; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .title { fill: #f0f6fc } .ground { fill: #0d1117; stroke: #3d444d }
    .grid { stroke: #262c36 } .lag { fill: #388bfd; stroke: #58a6ff } .bar { fill: #2ea043 }
    .truth { stroke: #f0f6fc } .away { fill: #f85149; fill-opacity: .18 } .kill { stroke: #f85149 }
    .killed { fill: #f85149 }
  }
"""


@dataclass(slots=True, frozen=True)
class Run:
    """All that is drawn."""

    samples: Sequence[Sample]
    kills: Sequence[Kill]
    truth: Mapping[int, int]  # clicks by minute, as they are
    counted: Mapping[int, int]  # and as the pipeline counted them

    @property
    def seconds(self) -> float:
        return max(1.0, self.samples[-1].at_s)

    @property
    def minutes(self) -> range:
        """From the first that has clicks to the last."""
        there = self.truth.keys() | self.counted.keys()
        return range(min(there), max(there) + MINUTE_MS, MINUTE_MS)

    @property
    def lag_max(self) -> int:
        return max(1, *(sample.lag for sample in self.samples))


@dataclass(slots=True, frozen=True)
class Panel:
    """A place for a plot, and its scales."""

    top: float
    bottom: float
    x_max: float
    y_max: float

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.x_max

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value / self.y_max


def svg(run: Run) -> str:
    body = [*_lag_panel(run), *_clicks_panel(run)]
    summary = f"The pipeline's lag over {run.seconds:.0f} seconds with two kills, and the clicks it counted"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(summary)}">',
            f"<style>{STYLE}</style>",
            f'<rect class="ground" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _lag_panel(run: Run) -> list[str]:
    panel = Panel(64, 200, run.seconds, _round_up(run.lag_max))
    lines = [_text(LEFT, 30, "Events that the pipeline is behind, by second of the run", "title")]
    lines += _grid(panel)
    lines += [_text(panel.x(at), panel.bottom + 18, f"{at} s", anchor="middle") for at in _ticks(run.seconds)]
    for kill in run.kills:
        left, right = panel.x(kill.at_s), panel.x(min(run.seconds, kill.back_s))
        lines.append(
            f'<rect class="away" x="{left:.1f}" y="{panel.top}" width="{right - left:.1f}" '
            f'height="{panel.bottom - panel.top}"/>'
        )
    points = " ".join(f"L{panel.x(sample.at_s):.1f} {panel.y(sample.lag):.1f}" for sample in run.samples)
    start, end = panel.x(run.samples[0].at_s), panel.x(run.seconds)
    lines.append(f'<path class="lag" d="M{start:.1f} {panel.bottom} {points} L{end:.1f} {panel.bottom} Z"/>')
    for kill in run.kills:
        lines += _kill_mark(panel, panel.x(kill.at_s), kill)
    return lines


def _clicks_panel(run: Run) -> list[str]:
    minutes = run.minutes
    highest = max([1, *run.truth.values(), *run.counted.values()])
    panel = Panel(284, 400, len(minutes), _round_up(highest))
    width = (panel.x(1) - panel.x(0)) * 0.7
    lines = [_text(LEFT, 250, "Clicks that count, by minute of the events", "title")]
    lines += [
        f'<rect class="bar" x="{WIDTH - 278}" y="241" width="10" height="10"/>',
        _text(WIDTH - 262, 250, "counted by the pipeline"),
        f'<path class="truth" d="M{WIDTH - 108} 246 h12"/>',
        _text(WIDTH - 90, 250, "the truth"),
    ]
    lines += _grid(panel)
    every = ceil(len(minutes) / 10)
    for number, minute in enumerate(minutes):
        left = panel.x(number + 0.5) - width / 2
        counted, true = panel.y(run.counted.get(minute, 0)), panel.y(run.truth.get(minute, 0))
        lines.append(
            f'<rect class="bar" x="{left:.1f}" y="{counted:.1f}" width="{width:.1f}" '
            f'height="{panel.bottom - counted:.1f}"/>'
        )
        lines.append(f'<path class="truth" d="M{left - 1:.1f} {true:.1f} h{width + 2:.1f}"/>')
        if number % every == 0:
            lines.append(_text(left + width / 2, panel.bottom + 18, _clock(minute), anchor="middle"))
    for kill in run.kills:
        at = min(panel.x_max, max(0, (kill.clock_ms - minutes[0]) / MINUTE_MS))
        lines += _kill_mark(panel, panel.x(at), kill)
    return lines


def _grid(panel: Panel) -> list[str]:
    lines = []
    for share in (0, 0.5, 1):
        y = panel.y(panel.y_max * share)
        lines.append(f'<path class="grid" d="M{LEFT} {y:.1f} H{WIDTH - RIGHT}"/>')
        lines.append(_text(LEFT - 8, y + 4, f"{panel.y_max * share:,.0f}", anchor="end"))
    return lines


def _kill_mark(panel: Panel, x: float, kill: Kill) -> list[str]:
    return [
        f'<path class="kill" d="M{x:.1f} {panel.top - 6} V{panel.bottom}"/>',
        _text(min(x, WIDTH - 60), panel.top - 10, f"kill -9 {kill.victim}", "killed", anchor="middle"),
    ]


def _text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text{of_kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _round_up(value: float) -> int:
    """To two digits that are easily halved."""
    step = 2 * int(10 ** max(0, len(str(int(value))) - 2))
    return ceil(value / step) * step


def _ticks(seconds: float) -> range:
    step = next(step for step in (5, 10, 20, 30, 60, 120, 300, 3600) if seconds / step <= 12)
    return range(0, int(seconds) + 1, step)


def _clock(moment_ms: int) -> str:
    return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%H:%M}"


# --- for a terminal ----------------------------------------------------------------------------------------


def lines(run: Run) -> list[str]:
    """The same, in characters."""
    minutes = run.minutes
    clicks = [run.counted.get(minute, 0) for minute in minutes]
    return [
        f"events behind, over {run.seconds:.0f} s (at most {run.lag_max:,})",
        *_columns(_resampled(run), TERMINAL_HEIGHT),
        *_marks(run),
        f"clicks that count, per minute from {_clock(minutes[0])} to {_clock(minutes[-1])} "
        f"(at most {max(clicks):,})",
        *_columns([clicks[i * len(clicks) // TERMINAL_WIDTH] for i in range(TERMINAL_WIDTH)], 2),
    ]


def _marks(run: Run) -> list[str]:
    """An arrow under the moment of each kill, side by side where there is room."""
    rows = [""]
    for kill in run.kills:
        column = min(TERMINAL_WIDTH - 1, int(kill.at_s / run.seconds * TERMINAL_WIDTH))
        if len(rows[-1]) >= column:
            rows.append("")
        rows[-1] = f"{rows[-1]:<{column}}▲ kill -9 {kill.victim}"
    return rows


def _resampled(run: Run) -> list[int]:
    """The highest lag of each column; one without samples is as the one before."""
    found: list[int] = []
    for column in range(TERMINAL_WIDTH):
        left, right = (run.seconds * (column + side) / TERMINAL_WIDTH for side in (0, 1))
        within = [sample.lag for sample in run.samples if left <= sample.at_s < right]
        found.append(max(within) if within else (found[-1] if found else 0))
    return found


def _columns(values: Sequence[int], height: int) -> list[str]:
    """Bars of block characters, the highest line first."""
    top = max(1, *values)
    eighths = [round(value / top * height * 8) for value in values]
    return [
        "".join(BLOCKS[min(8, max(0, eighth - 8 * row))] for eighth in eighths).rstrip()
        for row in reversed(range(height))
    ]
