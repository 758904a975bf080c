"""The reference of metrics says what brokers publish: no more, no less."""

import re
import urllib.request
from pathlib import Path

from kalda.pipelines.engine.metrics import MetricsEndpoint
from kalda.pipelines.engine.status import PipelineStatus
from tests.observed_cluster import ObservedCluster

PIPELINES = "kalda_pipeline_"
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def documented_names() -> set[str]:
    """Names in the first column of the tables, with short forms (`…_total`) written out."""
    names: set[str] = set()
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("| `"):
            continue
        stem = ""
        for name in re.findall(r"`([^`{]+)[^`]*`", line.split("|")[1]):
            if name.startswith("…"):
                name = stem + name.removeprefix("…")
            else:
                # Domain and type of the MBean: `kafka_server_replicamanager` of `…_partitioncount`.
                stem = "_".join(name.split("_")[:3])
            names.add(name)
    return names


def test_reference_lists_exactly_what_is_published(observed: ObservedCluster) -> None:
    """An operator builds dashboards from the reference; a name that is not there does not exist for them."""
    text = "".join(observed.scrape(number) for number in range(len(observed.metrics_ports)))
    published = set(re.findall(r"^# TYPE (\S+)", text, flags=re.MULTILINE))
    documented = {name for name in documented_names() if not name.startswith(PIPELINES)}
    assert ([], []) == (sorted(documented - published), sorted(published - documented))


def test_reference_lists_exactly_what_pipelines_publish() -> None:
    status = PipelineStatus("flights", "table", "file", "direct")
    with (
        MetricsEndpoint(lambda: [status], 0) as endpoint,
        urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as response,
    ):
        published = set(re.findall(r"^# TYPE (\S+)", response.read().decode(), flags=re.MULTILINE))
    assert {name for name in documented_names() if name.startswith(PIPELINES)} == published
