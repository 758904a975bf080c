"""Writes the metrics registry in Prometheus's formats: the text format 0.0.4, or OpenMetrics 1.0.

The text is produced in pieces, so that the caller can let the event loop run between two of them: 2,000
partitions make 24,000 lines. The rows of a table are read one after the other. The lines of each metric are
kept until all rows are read, because the formats group lines by metric and cannot be written row by row.

prometheus-client is not used: it needs four times as long for the same text.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from kalda.common.metrics import Counter, DerivedHistogram, Family, Histogram, Labels, Metrics, Table

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

ROWS_PER_PIECE: Final = 32
"""Rows of a table between two pieces: some 400 lines, a fifth of a millisecond."""

LINES_PER_PIECE: Final = 2_000
"""Lines that are joined and encoded at once: some 200 KB, a fifth of a millisecond."""


def render(metrics: Metrics, *, is_openmetrics: bool = False) -> bytes:
    """Write every metric at once."""
    return b"".join(exposition(metrics, is_openmetrics=is_openmetrics))


def exposition(metrics: Metrics, *, is_openmetrics: bool = False) -> Iterator[bytes]:
    """Write every metric in pieces, some of them empty; each takes a fraction of a millisecond.

    A metric without any sample is left out.
    """
    listed: dict[str, list[str]] = {}
    for table in metrics.tables():
        yield from _list_rows(table, listed)
    for family in metrics.families():
        lines = _samples(family)
        lines += listed.pop(family.name, ())
        if lines:
            sample_name = _sample_name(family.name, family.kind)
            title = family.name if is_openmetrics else sample_name
            yield f"# HELP {title} {family.help}\n# TYPE {title} {family.kind}\n".encode()
            for start in range(0, len(lines), LINES_PER_PIECE):
                yield "".join(lines[start : start + LINES_PER_PIECE]).encode()
    if is_openmetrics:
        yield b"# EOF\n"


def _list_rows(table: Table, listed: dict[str, list[str]]) -> Iterator[bytes]:
    """Add the lines of a table to those of each metric; the yielded pieces are empty."""
    columns = [
        (_sample_name(column.name, column.kind), listed.setdefault(column.name, []).append)
        for column in table.columns
    ]
    for number, row in enumerate(table.rows(), start=1):
        if row is None:
            yield b""
            continue
        labels, values = row
        text = _braced(labels)
        for (name, append), value in zip(columns, values, strict=True):
            if value is not None:
                append(f"{name}{text} {value}\n")
        if number % ROWS_PER_PIECE == 0:
            yield b""
    yield b""


def _samples(family: Family) -> list[str]:
    name = _sample_name(family.name, family.kind)
    lines: list[str] = []
    for labels, instrument in tuple(family.samples.items()):
        if isinstance(instrument, DerivedHistogram):
            instrument = instrument.read()
        if isinstance(instrument, Histogram):
            _add_histogram(name, labels, instrument, lines)
        else:
            value = instrument.value if isinstance(instrument, Counter) else instrument()
            lines.append(f"{name}{_braced(labels)} {value}\n")
    return lines


def _add_histogram(name: str, labels: Labels, histogram: Histogram, lines: list[str]) -> None:
    """Write a histogram; one that observed nothing is left out, as there are 80 APIs of 19 lines each."""
    running = list(accumulate(histogram.counts))
    if not running[-1]:
        return
    text = _label_text(labels)
    separator = "," if text else ""
    bounds = [*map(repr, map(float, histogram.bounds)), "+Inf"]
    for bound, count in zip(bounds, running, strict=True):
        lines.append(f'{name}_bucket{{{text}{separator}le="{bound}"}} {count}\n')
    lines.append(f"{name}_count{_braced(labels)} {running[-1]}\n")
    lines.append(f"{name}_sum{_braced(labels)} {histogram.sum}\n")


def _sample_name(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def _braced(labels: Labels) -> str:
    return f"{{{_label_text(labels)}}}" if labels else ""


def _label_text(labels: Labels) -> str:
    return ",".join([f'{label}="{_escape(value)}"' for label, value in labels])


def _escape(value: str) -> str:
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value
