"""What `kalda mirror once` copies between two brokers on one machine, the start of its process included."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.end_to_end import Figure, Workload, create_topic, produce_seconds
from kalda.testing import KaldaProcess

_PARTITIONS: Final = 4
_LOADS: Final = ((100, 3_000_000), (1_000, 500_000))
"""The size of a record, and how many there are."""
_DELIVERY: Final = {"exactly once": "enabled", "at least once": "disabled"}
_FILE: Final = """\
clusters = source, target
source.bootstrap.servers = {source}
target.bootstrap.servers = {target}
source->target.enabled = true
source->target.topics = load
exactly.once.source.support = {support}
"""


def run() -> list[Figure]:
    """Measure both ways of delivery, each with brokers of its own."""
    figures: list[Figure] = []
    for size, count in _LOADS:
        for delivery, support in _DELIVERY.items():
            with (
                tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
                KaldaProcess(Path(directory) / "source") as source,
                KaldaProcess(Path(directory) / "target") as target,
            ):
                workload = Workload(partitions=_PARTITIONS)
                create_topic(source.bootstrap, "load", workload)
                produce_seconds(source.bootstrap, "load", size, count, workload)
                file = Path(directory) / "mirror.properties"
                file.write_text(
                    _FILE.format(source=source.bootstrap, target=target.bootstrap, support=support)
                )
                rate = count / _mirror_seconds(file)
            figures += [
                (f"mirror {size} B, {delivery}", rate / 1e6, "M records/s"),
                (f"mirror {size} B, {delivery}, bytes", rate * size / 1e6, "MB/s"),
            ]
    return figures


def _mirror_seconds(file: Path) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "kalda", "mirror", "once", file], check=True, capture_output=True)
    return time.perf_counter() - begin
