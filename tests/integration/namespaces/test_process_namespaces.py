"""Namespaces of brokers that are processes."""

from pathlib import Path

import pytest

import kalda
from kalda.testing import KaldaProcessError, Namespace, ProcessCluster, Security

SETTINGS = {"kalda.namespaces.api.enable": "true"}


def test_two_namespaces_have_the_same_names(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, brokers=2, settings=SETTINGS) as cluster:
        with cluster.namespace() as one, cluster.namespace(faults="produce:NOT_LEADER*1") as other:
            write(one, b"of one")
            cluster.restart(1)
            write(other, b"of other")
            assert [b"of one"] == read(one)
            assert [b"of other"] == read(other)
            with pytest.raises(ValueError, match="namespace '1' is open already"):
                cluster.namespace("1")
        cluster.wait_namespaces_removed()
        with kalda.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert {} == admin.list_topics()


def test_users_of_the_cluster_log_in(tmp_path: Path) -> None:
    security = Security(users=["alice"], protocol="SASL_PLAINTEXT", mechanism="PLAIN", acls=False)
    with (
        ProcessCluster(tmp_path, brokers=1, settings=SETTINGS, security=security) as cluster,
        cluster.namespace("shop") as space,
        kalda.Producer.from_config(space.client_config("alice")) as producer,
    ):
        assert 0 == producer.send("orders", value=b"x").result(60).offset


def test_brokers_without_the_setting_have_no_namespaces(tmp_path: Path) -> None:
    with (
        ProcessCluster(tmp_path, brokers=1) as cluster,
        pytest.raises(KaldaProcessError, match=r"need the setting kalda.namespaces.api.enable=true"),
    ):
        cluster.namespace()


def write(space: Namespace, value: bytes) -> None:
    with kalda.Producer(bootstrap_servers=space.bootstrap, acks="all") as producer:
        producer.send("orders", value=value).result(60)


def read(space: Namespace) -> list[bytes | None]:
    with kalda.Consumer(
        "orders", bootstrap_servers=space.bootstrap, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        return [record.value for record in consumer.poll(60)]
