"""Every test here runs on each engine that it can run on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.etcd_servers import EtcdCluster
from tests.integration.etcd_servers import etcd_server as etcd_server
from tests.integration.real_zookeeper import RealZooKeeper
from tests.integration.real_zookeeper import real_zookeeper as real_zookeeper
from tests.integration.zookeeper.client.engines import EmbeddedEngine, EnsembleEngine, EtcdEngine, engine_of


def _real(request: pytest.FixtureRequest) -> RealZooKeeper:
    server = request.getfixturevalue("real_zookeeper")
    assert isinstance(server, RealZooKeeper)
    return server


def _etcd(request: pytest.FixtureRequest) -> EtcdCluster:
    cluster = request.getfixturevalue("etcd_server")
    assert isinstance(cluster, EtcdCluster)
    return cluster


@pytest.fixture(params=["embedded", "wire", "real", "etcd"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[EmbeddedEngine | EnsembleEngine | EtcdEngine]:
    """Our server without a wire, our server over the wire, a real ZooKeeper, and etcd."""
    async with engine_of(
        request.param, tmp_path / "zookeeper", lambda: _real(request), lambda: _etcd(request)
    ) as engine:
        yield engine


@pytest.fixture(params=["wire", "real"])
async def ensemble_engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EnsembleEngine]:
    """Those with a connection that can break."""
    async with engine_of(
        request.param, tmp_path / "zookeeper", lambda: _real(request), lambda: _etcd(request)
    ) as engine:
        assert isinstance(engine, EnsembleEngine)
        yield engine
