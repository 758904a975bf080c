"""Prints the metrics of a client behind a performance run, as Kafka's tools do with ``--print-metrics``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kalda.command.output import Form, Output

if TYPE_CHECKING:
    from kalda.clients.metrics.registry import MetricName


def show_metrics(output: Output, metrics: "Mapping[MetricName, float]") -> None:
    """Write one line for each metric, sorted by name; with ``--json`` one document for all."""
    named = {
        f"{name.group}:{name.name}:{{{', '.join(f'{tag}={value}' for tag, value in name.tags)}}}": value
        for name, value in metrics.items()
    }
    if output.form is Form.JSON:
        output.item({"metrics": {name: _finite(value) for name, value in sorted(named.items())}}, "")
        return
    width = max(map(len, named), default=0)
    output.item(None, f"\n{'Metric Name'.ljust(width)}   Value")
    for name, value in sorted(named.items()):
        output.item(None, f"{name.ljust(width)} : {value:.3f}")


def _finite(value: float) -> float | None:
    """Return the value, or None for what JSON has no number for: a metric without samples."""
    return value if value - value == 0 else None
