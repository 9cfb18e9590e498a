"""A progress bar on stderr, if that is a terminal."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

REDRAW_S = 0.1


class ProgressBar:
    """Counts records; `total` None is an open end."""

    def __init__(
        self, title: str, total: int | None, *, is_shown: bool | None = None, is_kept: bool = True
    ) -> None:
        self.title = title
        self.total = total
        self.count = 0
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown
        self._is_kept = is_kept  # whether it stays on the screen when it is done
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._drawn_at = 0.0

    def __enter__(self) -> Self:
        if self._is_shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.completed:>11,.0f} records"),
                TextColumn("{task.fields[rate]:>9,.0f}/s"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                auto_refresh=False,
                transient=not self._is_kept,
            )
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, rate=0.0)
        self.started_at = time.monotonic()
        return self

    def advance(self, records: int) -> None:
        self.count += records
        now = time.monotonic()
        if now - self._drawn_at >= REDRAW_S:
            self._draw(now)

    @property
    def seconds(self) -> float:
        return max(1e-9, time.monotonic() - self.started_at)

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    def _draw(self, now: float) -> None:
        self._drawn_at = now
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.count, rate=self.rate, refresh=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._draw(time.monotonic())
            self._bar.stop()
