"""Prints the summary at the end of the demo, from the tables that the pipelines wrote."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table as DrawnTable

from kalda.pipelines.spec.model import PipelineFile, TableSpec
from kalda.pipelines.tables import Table, open_table

_BARS = "▁▂▃▄▅▆▇█"
_AIRLINE_WIDTH = 15
"""Keeps the table within 80 columns."""
_HOURS = range(5, 24)
"""No more than one flight of the year was scheduled outside these hours."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the whole table; the demo compares them with the events that it sent."""

    flights: int
    unparsed: int
    delay_minutes: int


def read_departures(file: PipelineFile) -> int:
    """Return the number of rows in the table of departures."""
    return sum(batch.num_rows for batch in _open(file, "departures").read(columns=["carrier"]))


def read_delays(file: PipelineFile) -> list[dict[str, Any]]:
    """Return the delays by carrier and hour: each batch of the pipeline wrote its own, which are added up."""
    table = pa.Table.from_batches(_open(file, "delays").read())
    sums = ("flights", "departed", "delay_minutes", "late")
    keys = ["carrier", "airline", "hour"]
    added = table.group_by(keys).aggregate([(name, "sum") for name in sums]).rename_columns([*keys, *sums])
    rows: list[dict[str, Any]] = added.to_pylist()
    return rows


def _open(file: PipelineFile, pipeline: str) -> Table:
    (target,) = (each.target for each in file.pipelines if each.name == pipeline)
    assert isinstance(target, TableSpec), target
    return open_table(target)


def totals(rows: list[dict[str, Any]]) -> Totals:
    """Add up the table; rows without a carrier are records that could not be parsed."""
    return Totals(
        flights=sum(row["flights"] for row in rows if row["carrier"] is not None),
        unparsed=sum(row["flights"] for row in rows if row["carrier"] is None),
        delay_minutes=sum(row["delay_minutes"] or 0 for row in rows),
    )


def print_summary(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print one line for each airline, the busiest first."""
    by_carrier: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_carrier[row["carrier"] or "?", row["airline"] or "?"].append(row)
    table = DrawnTable(
        title="Departures from New York City in 2013", title_justify="left", box=box.SIMPLE, pad_edge=False
    )
    table.add_column("airline", no_wrap=True, max_width=_AIRLINE_WIDTH)
    for name in ("flights", "cut", "delay", "late", "worst"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"delay by hour {_HOURS[0]}-{_HOURS[-1]}", no_wrap=True)
    for (_, airline), hours in sorted(
        by_carrier.items(), key=lambda item: -sum(row["flights"] for row in item[1])
    ):
        flights = sum(row["flights"] for row in hours)
        departed = sum(row["departed"] for row in hours)
        means = {row["hour"]: row["delay_minutes"] / row["departed"] for row in hours if row["departed"]}
        table.add_row(
            airline,
            f"{flights:,}",
            f"{1 - departed / flights:.1%}",
            f"{sum(row['delay_minutes'] or 0 for row in hours) / departed:.1f}",
            f"{sum(row['late'] for row in hours) / departed:.0%}",
            f"{max(means, key=lambda hour: means[hour])}:00",
            _spark_line(means),
        )
    console.print(table)
    console.print("cut: cancelled; delay: mean minutes; late: over 15 minutes; worst: the hour", style="dim")


def _spark_line(means: dict[int, float]) -> str:
    scale = max(1.0, *means.values())
    bars = []
    for hour in _HOURS:
        share = max(0.0, means[hour]) / scale if hour in means else None
        bars.append(" " if share is None else _BARS[min(int(share * len(_BARS)), len(_BARS) - 1)])
    return "".join(bars)
