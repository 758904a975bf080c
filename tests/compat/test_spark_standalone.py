"""The demo's pipelines on a standalone Spark cluster: a master and two workers from PySpark's wheel."""

import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120


def _spark_class(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments], stdout=output, stderr=output, env=environment
        )


def _wait_for(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> re.Match[str]:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found
        time.sleep(0.2)
    raise AssertionError(f"no {pattern!r} in {log}: {log.read_text(errors='replace')[-2000:]}")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers."""
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> tuple[Path, subprocess.Popen[bytes]]:
            log = tmp_path / f"{name}.log"
            process = _spark_class(log, *arguments)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
            return log, process

        options = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log, process = start("master", "org.apache.spark.deploy.master.Master", *options)
        address = _wait_for(log, r"Starting Spark master at (spark://[\w.:]+)", process)[1]
        for number in (1, 2):
            resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work{number}"))
            log, process = start(
                f"worker{number}", "org.apache.spark.deploy.worker.Worker", *options, *resources, address
            )
            _wait_for(log, "Successfully registered with master", process)
        yield address


def _shipped_python(directory: Path) -> dict[str, str]:
    """Return the environment of a driver that ships its executors a Python, as the how-to says.

    The archive's Python only calls this one; a packed environment of this size would take minutes.
    """
    python, archive = directory / "python", directory / "environment.tar.gz"
    python.write_text(f'#!/bin/sh\necho started >> "{directory}/shipped"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(python, "bin/python")
    (directory / "spark-defaults.conf").write_text(f"spark.archives {archive}#environment\n")
    return {"SPARK_CONF_DIR": str(directory), "PYSPARK_PYTHON": "./environment/bin/python"}


@pytest.mark.timeout(600)
def test_the_demo_runs_on_a_cluster(master: str, tmp_path: Path) -> None:
    """The same file and the same checks as on one machine; executors run the Python that the driver ships."""
    shipped = tmp_path / "shipping"
    shipped.mkdir()
    environment = {**os.environ, "MASTER": master, **_shipped_python(shipped)}
    demo = subprocess.run(
        [sys.executable, "-m", "examples.flights.demo"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert 0 == demo.returncode, demo.stdout[-3000:] + demo.stderr[-3000:]
    assert "checked: 336,776 produced" in demo.stdout
    assert (shipped / "shipped").exists()
