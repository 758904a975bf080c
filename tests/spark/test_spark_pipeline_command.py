"""`kalda pipeline run` as a process: restarts, status, metrics, compaction, and the end by SIGTERM."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.tools.commands import KALDA, Commands

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

WAIT_S = 120

FILE = """\
name: shop
storage: state
defaults: {trigger: 500ms, restart: {backoff: 100ms}, value: {format: json, schema: "id bigint"}}
pipelines:
  - name: NAME-rows
    from: {topic: NAME}
    to: {table: lake.rows, format: parquet, compact: {every: 1s, newest: 0s}}
  - name: NAME-marked
    from: {topic: NAME}
    transform: [{python: shop_steps:mark}]
    to: {table: lake.marked, format: delta}
  - name: NAME-waiting
    from: {topic: NAME}
    to: {table: lake.waiting, format: parquet, max_latency: 1h}
"""

STEPS = """\
import pathlib


def mark(batch):
    seen = pathlib.Path(FLAG)
    if batch.num_rows and not seen.exists():
        seen.touch()
        return None  # not the fault of a record: the attempt fails
    return batch
"""


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str], log: Path) -> Any:
    """Return the condition's value as soon as it is true."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-3000:]
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"not in time: {log.read_text()[-3000:]}")


def test_a_run_restarts_reports_compacts_and_ends_by_a_signal(topics: "Topics", tmp_path: Path) -> None:
    """What an operator sees of a run; with `max_latency`, records wait for others."""
    topic = topics.create("shop")
    file, log = tmp_path / "shop.yml", tmp_path / "run.log"
    file.write_text(FILE.replace("NAME", topic))
    (tmp_path / "shop_steps.py").write_text(f"FLAG = {str(tmp_path / 'failed-once')!r}\n{STEPS}")
    kalda = Commands(topics.bootstrap)

    def send() -> None:
        topics.fill(topic, [json.dumps({"id": number}).encode() for number in range(10)])

    def statuses() -> dict[str, Any]:
        found = kalda("pipeline", "status", file, "--json").json["pipelines"]
        return {each["pipeline"].removeprefix(f"{topic}-"): each for each in found}

    send()
    environment = {
        **os.environ,
        "KALDA_BOOTSTRAP_SERVER": topics.bootstrap,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [*KALDA, "pipeline", "run", str(file), "--master", "local[2]", "--metrics-port", "0"]
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, text=True)
    try:
        url = wait_for(
            lambda: re.search(r"metrics on (http://127.0.0.1:\d+/metrics)", log.read_text()), process, log
        )[1]

        def have(rows: int) -> bool:
            found = statuses()
            return len(found) == 3 and all(rows == found[name]["rows_out"] for name in ("rows", "marked"))

        # The first batch of a query never waits.
        wait_for(lambda: have(10) and statuses()["waiting"]["rows_out"] == 10, process, log)
        send()
        wait_for(lambda: have(20) and statuses()["waiting"]["lag"] == 10, process, log)
        found = statuses()
        assert [0, 1, 0] == [found[name]["restarts"] for name in ("rows", "marked", "waiting")]
        assert 10 == found["waiting"]["rows_out"]
        assert all(each["is_responding"] and "running" == each["state"] for each in found.values())
        shown = kalda("pipeline", "status", file, f"{topic}-rows").stdout
        assert ["running", "direct", "lake.rows"] == shown.splitlines()[1].split()[1:4]

        with urllib.request.urlopen(url) as answer:
            metrics = answer.read().decode()
        assert f'kalda_pipeline_records_total{{pipeline="{topic}-rows"}} 20.0' in metrics
        assert f'kalda_pipeline_restarts_total{{pipeline="{topic}-marked"}} 1.0' in metrics
        replaced = tmp_path / "state/tables/lake/rows/_kalda/removed"
        wait_for(replaced.exists, process, log)

        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(WAIT_S), log.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
    noise = re.compile(
        r"WARNING: |log4j|log level|loopback|\bWARN\b|Traceback|py4j|java\.|^\s+at ", re.MULTILINE
    )
    assert noise.search(log.read_text()) is None, log.read_text()
    assert "shop_steps:mark returned NoneType" in log.read_text()
    assert {"stopped"} == {each["state"] for each in statuses().values()}
    lags = kalda("pipeline", "lag", file, "--json").json["lag"]
    own = {each["pipeline"]: each["lag"] for each in lags if each["topic"] == topic}
    assert {f"{topic}-rows": 0, f"{topic}-marked": 0, f"{topic}-waiting": 10} == own
