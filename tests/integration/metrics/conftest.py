"""One cluster with a bit of everything for all tests of what it publishes."""

from collections.abc import Iterator

import pytest

from tests.observed_cluster import ObservedCluster, observed_cluster


@pytest.fixture(scope="package")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedCluster]:
    with observed_cluster(tmp_path_factory.mktemp("observed") / "data") as cluster:
        yield cluster
