"""The tests of the etcd engine, and of clusters on it, with etcd's releases from Go's modules.

`make test` runs them with Debian's etcd 3.4.
"""

import os
import subprocess
import sys

import pytest

from benchmarks.apache_kafka import NotAvailableError
from tests.compat.go_toolchain import etcd_programs

TESTS = (
    "tests/integration/etcd",
    "tests/integration/zookeeper/client",
    "tests/integration/cluster/test_cluster_on_etcd.py",
)
TESTS_SECONDS = 1_200


@pytest.mark.timeout(3 * TESTS_SECONDS)
@pytest.mark.parametrize("version", ["3.5.35", "3.6.16", "3.7.3"])
def test_a_release_of_etcd_coordinates_a_cluster(version: str) -> None:
    try:
        programs = etcd_programs(version)
    except NotAvailableError as error:
        pytest.skip(str(error))
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "etcd", *TESTS],
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TESTS_SECONDS,
        check=False,
    )
    assert 0 == done.returncode, done.stdout
    summary = done.stdout.splitlines()[-1]
    assert " passed" in summary
    assert "skipped" not in summary
