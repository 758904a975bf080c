"""What `contrib/grafana` asks for is there in a scrape of brokers that work."""

from pathlib import Path

import pytest

from tests.dashboards import Query, Selector, dashboard_queries, rule_queries, selectors, substitute
from tests.observed_cluster import ObservedCluster, Sample

GRAFANA = Path(__file__).parents[3] / "contrib" / "grafana"
DASHBOARD = dashboard_queries(GRAFANA / "kalda-dashboard.json")
RULES = rule_queries(GRAFANA / "kalda-alerts.yml")
VARIABLES = dict.fromkeys(("job", "instance", "topic", "consumergroup"), ".*") | {"__rate_interval": "1m"}

OF_PROMETHEUS = frozenset(("up",))
"""Series that Prometheus makes itself."""


@pytest.fixture(scope="module")
def samples(observed: ObservedCluster) -> list[Sample]:
    """What Prometheus would keep: with the labels of the target."""
    observed.work()
    found = observed.samples()
    for sample in found:
        sample.labels.update(job="kalda", instance="broker:9404")
    return found


def missing(query: Query, samples: list[Sample]) -> list[Selector]:
    wanted = selectors(substitute(query.expression, VARIABLES))
    assert wanted, f"{query.expression} selects nothing that is known"
    return [
        each
        for each in wanted
        if each.name not in OF_PROMETHEUS
        and not any(each.matches(sample.name, sample.labels) for sample in samples)
    ]


def test_files_are_read_whole() -> None:
    """A file that is laid out in another way would be checked in part only, and nobody would notice."""
    text = (GRAFANA / "kalda-dashboard.json").read_text(encoding="utf-8")
    assert len(DASHBOARD) == text.count('"expr"')
    text = (GRAFANA / "kalda-alerts.yml").read_text(encoding="utf-8")
    assert len(RULES) == text.count("- alert:")


def test_every_query_of_the_dashboard_finds_data(samples: list[Sample]) -> None:
    assert [] == [(query.title, lacking) for query in DASHBOARD if (lacking := missing(query, samples))]


def test_every_alert_watches_something_that_exists(samples: list[Sample]) -> None:
    """An alert on a series that does not exist never fires."""
    assert [] == [(query.title, lacking) for query in RULES if (lacking := missing(query, samples))]
