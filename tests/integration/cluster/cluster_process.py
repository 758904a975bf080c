"""A whole cluster in one process of its own, for tests that share it.

    python cluster_process.py BROKERS DIRECTORY '{"setting": "value", ...}'

`kalda.testing.Cluster` is up within a second, but its brokers are threads: in the tests' process they would
go on beside every other test. A process for each broker would take several times as long to start.
"""

import json
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from kalda.testing import Cluster
from kalda.testing.process import CommandProcess


class ClusterProcess(CommandProcess):
    """Runs this file; ends with an error if a broker has failed by itself."""

    def __init__(self, directory: Path, *, brokers: int, settings: Mapping[str, str]) -> None:
        super().__init__(directory / "stderr", command=[sys.executable, __file__])
        self._arguments = [str(brokers), str(directory / "cluster"), json.dumps(dict(settings))]

    def arguments(self) -> list[str]:
        """Return what follows the file's name on the command line."""
        return self._arguments


def main() -> None:
    brokers, directory, settings = sys.argv[1:]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with Cluster(int(brokers), directory=Path(directory), settings=json.loads(settings)) as cluster:
        print(f"kalda ready bootstrap={cluster.bootstrap} zookeeper={cluster.zookeeper}", flush=True)
        stopping.wait()


if __name__ == "__main__":
    main()
