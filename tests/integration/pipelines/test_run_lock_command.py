"""`kalda pipeline` beside a process that runs the same pipeline."""

import os
from pathlib import Path

import pytest

from kalda.pipelines.engine.run_lock import RunLock
from tests.integration.tools.commands import Commands

_FILE = """
name: shop
storage: state
cluster: {bootstrap.servers: "127.0.0.1:1"}
pipelines:
  - name: orders
    from: {topic: orders, start: earliest, value: {format: json, schema: "id bigint"}}
    to: {table: lake.orders, format: parquet}
"""


@pytest.mark.parametrize(
    ("verb", "more", "locked"),
    [
        ("run", [], "state"),
        ("once", [], "state"),
        ("repair", ["--execute"], "state"),
        ("replay", ["orders"], "state/refills"),
    ],
)
def test_a_second_process_is_refused_before_it_starts_spark(
    tmp_path: Path, verb: str, more: list[str], locked: str
) -> None:
    """There is not even a broker: nothing was asked of one."""
    file = tmp_path / "shop.yaml"
    file.write_text(_FILE)
    commands = Commands("127.0.0.1:1")

    with RunLock((tmp_path / locked).as_uri(), "orders"):
        done = commands.run("pipeline", verb, str(file), *more)

    assert 1 == done.code
    assert f"orders is being run by process {os.getpid()} on " in done.stderr


def test_once_ends_where_the_cluster_cannot_be_reached(tmp_path: Path) -> None:
    """A scheduler's task would wait for all restarts otherwise. Spark is not started."""
    file = tmp_path / "shop.yaml"
    file.write_text(_FILE.replace('"127.0.0.1:1"', '"127.0.0.1:1", default.api.timeout.ms: "1000"'))

    done = Commands("127.0.0.1:1").run("pipeline", "once", str(file))

    assert 1 == done.code
    assert "127.0.0.1:1" in done.stderr
    assert "starts again" not in done.stderr
