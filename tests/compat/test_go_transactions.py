"""franz-go's own transaction tests on three brokers, with replication 3.

Producers that begin the next transaction while the markers of the one before are being written, and chains of
transactional groups of both protocols: what one broker alone does not show.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.testing import ProcessCluster
from tests.compat.go_toolchain import kgo_tests

CASES = 6
RECORDS = 30_000
"""Fewer than the tests' own 500,000: three transactions of the producer, dozens in each group."""
RUN_SECONDS = 400


@pytest.fixture(scope="session")
def kgo_test_program() -> Path:
    """franz-go's tests as a program."""
    try:
        return kgo_tests()
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", [{}, {"KGO_TEST_UNSAFE": "1"}], ids=["safe", "unsafe"])
def test_franz_go_copies_exactly_once_between_three_brokers(
    tmp_path: Path, kgo_test_program: Path, extra: Mapping[str, str]
) -> None:
    """`unsafe` ends a transaction and begins the next without waiting for the answer."""
    with ProcessCluster(tmp_path, brokers=3, settings={"min.insync.replicas": "2"}) as cluster:
        done = subprocess.run(
            [kgo_test_program, "-test.run=^TestTxnEtl$", "-test.v", f"-test.timeout={RUN_SECONDS}s"],
            env={
                **os.environ,
                "KGO_SEEDS": cluster.bootstrap,
                "KGO_TEST_RF": "3",
                "KGO_TEST_RECORDS": str(RECORDS),
                "KGO_LOG_LEVEL": "none",
                **extra,
            },
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS + 30,
            check=False,
        )
    output = done.stdout + done.stderr
    assert 0 == done.returncode, output[-5000:]
    assert CASES == len(re.findall(r"^\s+--- PASS: TestTxnEtl/", output, re.MULTILINE)), output[-5000:]
