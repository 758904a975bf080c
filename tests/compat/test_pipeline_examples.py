"""The examples in the help of `kalda pipeline` run; not in `make test`, since Spark starts often."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kalda.testing import KaldaProcess
from tests.integration.tools.commands import KALDA
from tests.integration.tools.example_lines import examples_of, run_line, words_of

pytest.importorskip("pyspark")

RECORDS = 200
NOT_NOW = {"export-sdp", "repair"}
"""Exit code 1: the pipeline has an expectation that Spark's own pipelines lack, and no lost checkpoint."""


@pytest.mark.timeout(1800)
def test_the_examples_of_pipelines_run(tmp_path: Path) -> None:
    with KaldaProcess(tmp_path / "data") as broker:
        environment = {"KALDA_BOOTSTRAP_SERVER": broker.bootstrap}
        assert 0 == run_line("kalda topics create orders", tmp_path, environment).returncode
        orders = "\n".join(
            json.dumps({"id": number, "amount": number - 0.5, "ts": "2026-01-02T03:04:05Z"})
            for number in range(RECORDS)
        )
        sent = subprocess.run(
            [*KALDA, "produce", "orders", "--bootstrap-server", broker.bootstrap],
            input=orders,
            text=True,
            check=False,
        )
        assert 0 == sent.returncode
        failed = []
        for line in examples_of("pipeline"):
            if line.startswith("kalda pipeline init"):
                done = run_line(line, tmp_path, environment)
                file = tmp_path / "orders.yml"
                file.write_text(file.read_text().replace("localhost:9092", broker.bootstrap))
            elif line.startswith(("kalda pipeline run", "kalda pipeline status")):
                done = _until_it_is_asked(line, tmp_path, environment)
            else:
                done = run_line(line, tmp_path, environment)
            allowed = (0, 1) if words_of(line)[0][1] in NOT_NOW else (0,)
            print(line, done.returncode)
            if done.returncode not in allowed:
                failed.append((line, done.returncode, done.stderr[-2000:]))
    assert not failed, "\n".join(map(str, failed))


def _until_it_is_asked(
    line: str, directory: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run an example that ends by Ctrl-C only, which it gets after its first line."""
    command = [*KALDA, *words_of(line)[0]]
    with subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=300)
    return subprocess.CompletedProcess(command, process.returncode, "", first + rest)
