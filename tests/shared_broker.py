"""One broker that many tests share, each with topics of its own."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kalda.testing import KaldaProcess

NO_RETENTION = {"log.retention.check.interval.ms": "86400000"}
"""Records whose timestamps are a test's own, and so years old, are not deleted before they are read."""


@contextmanager
def shared_broker(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a broker and yield its address.

    ``KALDA_TEST_BOOTSTRAP=host:port`` points the same tests at another broker, for example Apache Kafka, to
    see whether a test or the broker is wrong.
    """
    given = os.environ.get("KALDA_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    # A topic more, which only the tests of the history need.
    chosen = {"kalda.cluster.history.enable": "false", **NO_RETENTION, **(settings or {})}
    with KaldaProcess(directory / "data", settings=chosen) as process:
        yield process.bootstrap
