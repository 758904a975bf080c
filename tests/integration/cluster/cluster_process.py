"""A whole cluster in one process of its own, for tests that share it.

    python cluster_process.py BROKERS DIRECTORY '{"setting": "value", ...}'

`kalda.testing.Cluster` is up within a second, but its brokers are threads: in the tests' process they would
go on beside every other test. A process for each broker would take several times as long to start.
"""

import json
import logging
import os
import signal
import sys
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
    # Errors of brokers; without a handler of the root logger nobody would see them.
    logging.basicConfig(level=logging.ERROR)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Written by the signal itself: one that another thread gets would not end a wait for a lock.
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGTERM, lambda *_: None)
    with Cluster(int(brokers), directory=Path(directory), settings=json.loads(settings)) as cluster:
        print(f"kalda ready bootstrap={cluster.bootstrap} zookeeper={cluster.zookeeper}", flush=True)
        os.read(reading, 1)


if __name__ == "__main__":
    main()
