"""Apache Kafka 3.9.1 takes what Kalda's clusters leave behind: a sample of the suite, with kills and moves.

`tests.compat.kept_directories` says how to look at what all tests leave.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError, kafka_jars
from kalda.testing.kept_directories import VARIABLE
from tests.compat.kept_directories import RELEASE, examine, excuse

ROOT = Path(__file__).resolve().parents[2]
INTEGRATION = "tests/integration"
SAMPLE = (
    f"{INTEGRATION}/broker/test_every_version_of_every_api.py",
    f"{INTEGRATION}/cluster/test_damaged_replicas.py::test_one_damaged_replica_gets_its_records_back",
    f"{INTEGRATION}/cluster/test_moves_between_log_directories.py",
    f"{INTEGRATION}/cluster/test_cordoned_directories.py",
    f"{INTEGRATION}/groups/test_coordinator_failover.py",
    f"{INTEGRATION}/storage/test_compaction.py",
    f"{INTEGRATION}/transactions/test_commit_crash_points.py",
)

pytestmark = pytest.mark.timeout(3600)  # A Java virtual machine for each of some 50 brokers.


def test_kafka_starts_on_what_clusters_leave_behind(tmp_path: Path) -> None:
    try:
        kafka_jars(RELEASE)
    except NotAvailableError as error:
        pytest.skip(str(error))
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SAMPLE]
    environment = {**os.environ, VARIABLE: str(kept), "PYTEST_ADDOPTS": f"--basetemp={tmp_path / 'sample'}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout[-4000:]
    findings = [examine(each) for each in sorted(kept.iterdir())]
    assert len(findings) >= 20
    assert [] == [str(each) for each in findings if each.problems and excuse(each) is None]
    assert sum(each.records for each in findings) > 1000
