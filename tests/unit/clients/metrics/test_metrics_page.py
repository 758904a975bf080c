"""``docs/reference/client-metrics.md`` has each metric of the clients; ``KALDA_REWRITE_DOCS=1`` writes it."""

import os
from pathlib import Path

from kalda.clients.metrics.client_info import add_client_info
from kalda.clients.metrics.consumer_metrics import CoordinatorMetrics, FetchMetrics, PollMetrics, PollTimes
from kalda.clients.metrics.network_metrics import NetworkMetrics, add_loop_thread
from kalda.clients.metrics.producer_metrics import ProducerMetrics
from kalda.clients.metrics.registry import ClientMetrics, MetricKind
from kalda.clients.metrics.share_metrics import GROUP, ShareCoordinatorMetrics, ShareFetchMetrics
from kalda.common.types import TopicPartition

PAGE = Path(__file__).parents[4] / "docs/reference/client-metrics.md"
MARK = "<!-- The tables below are made by tests/unit/clients/metrics/test_metrics_page.py. -->\n"


def every_metric() -> ClientMetrics:
    metrics = ClientMetrics({"client-id": ""})
    add_client_info(metrics)
    for kind in ("producer", "consumer", "admin-client"):
        NetworkMetrics(metrics, kind).node(0)
    for group in ("producer-metrics", "consumer-metrics"):
        add_loop_thread(metrics, group)
    producer = ProducerMetrics(metrics)
    producer.watch_buffer(1, lambda: 1, lambda: 0)
    producer.watch_sender(lambda: 0, lambda: 0.0)
    producer.topic("t")
    PollMetrics(metrics)
    fetches = FetchMetrics(metrics)
    fetches.topic_fetched("t", 1, 1)
    fetches.read_replica(TopicPartition("t", 0), -1)
    CoordinatorMetrics(metrics, lambda: 0)
    PollTimes(metrics, GROUP)
    ShareFetchMetrics(metrics)
    ShareCoordinatorMetrics(metrics)
    return metrics


def tables() -> str:
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for metric in every_metric().all():
        tags = tuple(name for name, _ in metric.name.tags)
        kind = "total" if metric.kind is MetricKind.SUM else "value"
        row = f"| `{metric.name.name}` | {kind} | {metric.description} |"
        groups.setdefault((metric.name.group, tags), []).append(row)
    for text in every_metric().texts():
        tags = tuple(name for name, _ in text.name.tags)
        groups.setdefault((text.name.group, tags), []).append(
            f"| `{text.name.name}` | text | {text.description} |"
        )
    parts = []
    for (group, tags), rows in sorted(groups.items()):
        shown = ", ".join(f"`{tag}`" for tag in tags)
        head = f"## {group}\n\nTags: {shown}\n\n| metric | kind | meaning |\n|---|---|---|\n"
        parts.append(head + "\n".join(sorted(rows)) + "\n")
    return "\n".join(parts)


def test_the_page_has_each_metric() -> None:
    text = PAGE.read_text(encoding="utf-8")
    introduction, _, _ = text.partition(MARK)
    expected = f"{introduction}{MARK}\n{tables()}"
    if os.environ.get("KALDA_REWRITE_DOCS"):
        PAGE.write_text(expected, encoding="utf-8")
    assert expected == text, "run KALDA_REWRITE_DOCS=1 pytest tests/unit/clients/metrics/test_metrics_page.py"
