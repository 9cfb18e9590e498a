"""The statistics of a file as Delta's log has them: JSON, with moments as text."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from headrace.lake.statistics import FileStats


def delta_stats(stats: FileStats) -> str:
    least: dict[str, int | str] = {}
    most: dict[str, int | str] = {}
    for name in stats.least:
        first, last = stats.least[name], stats.most[name]
        if name not in stats.moments:
            least[name], most[name] = first, last
            continue
        first_text, last_text = _moment_text(first), _moment_text(last)
        if first_text is not None and last_text is not None:
            least[name], most[name] = first_text, last_text
    return json.dumps(
        {
            "numRecords": stats.row_count,
            "minValues": least,
            "maxValues": most,
            "nullCount": stats.null_counts,
        }
    )


def _moment_text(micros: int) -> str | None:
    """None for years that Delta's text cannot have. Kafka's times are whole milliseconds."""
    try:
        moment = datetime.fromtimestamp(micros // 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{micros // 1000 % 1000:03d}Z" if moment.year >= 1000 else None
