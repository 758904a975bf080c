"""The reference of metrics says what a broker publishes: no more, no less."""

import re
import socket
import urllib.request
from pathlib import Path

from kalda.testing import KaldaProcess

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def documented_names() -> set[str]:
    """Names in the first column of the tables, with the short forms (`…_total`) written out."""
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


def test_reference_lists_exactly_what_is_published(tmp_path: Path) -> None:
    """An operator builds dashboards from the reference; a name that is not there does not exist for them."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/metrics"
    with (
        KaldaProcess(tmp_path / "data", settings={"metrics.port": str(port)}),
        urllib.request.urlopen(address, timeout=10) as answer,
    ):
        text = answer.read().decode()
    published = set(re.findall(r"^# TYPE (\S+)", text, flags=re.MULTILINE))
    ours = {name for name in published if not name.startswith("process_")}
    # A family of counters appears with its first error, so a broker without errors does not publish it.
    lazy = {"kafka_network_requestmetrics_errors_total"}
    assert documented_names() - lazy == ours - lazy
