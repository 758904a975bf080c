"""Runs real brokers for the tests of an application, for the length of a ``with`` block or of a test.

`Cluster` runs brokers in the test's own process and starts fastest. `ProcessCluster` runs each broker in a
process of its own. `KaldaProcess` runs the command ``kalda start``. The ``bootstrap`` of each is the
``bootstrap.servers`` of a Kafka client. `Security` gives a cluster encryption, logins and ACLs.
`kalda.testing.pytest_plugin` has fixtures for pytest, which give a test a `Kafka` or a `KafkaCluster`.

They run `kalda.broker` and `kalda.zookeeper.server`, use the sessions of `kalda.zookeeper.client`, and wrap
the connections of `kalda.net.peer` and the files of `kalda.runtime.system` to inject failures. The package
contains no mocks, and nothing in the broker depends on it.

Names are loaded on first use: pytest imports the package in every test run, also in those without brokers.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kalda.testing.cluster import Cluster
    from kalda.testing.cluster_threads import ClusterError
    from kalda.testing.kafka import AsyncView, Kafka, KafkaCluster
    from kalda.testing.kafka_factory import KafkaFactory
    from kalda.testing.namespace import Namespace
    from kalda.testing.process import KaldaProcess, KaldaProcessError
    from kalda.testing.process_cluster import BrokerProcess, ProcessCluster, ZooKeeperProcess
    from kalda.testing.security import Security

__all__ = [
    "AsyncView",
    "BrokerProcess",
    "Cluster",
    "ClusterError",
    "Kafka",
    "KafkaCluster",
    "KafkaFactory",
    "KaldaProcess",
    "KaldaProcessError",
    "Namespace",
    "ProcessCluster",
    "Security",
    "ZooKeeperProcess",
]

_MODULES: Final = {
    "AsyncView": "kalda.testing.kafka",
    "BrokerProcess": "kalda.testing.process_cluster",
    "Cluster": "kalda.testing.cluster",
    "ClusterError": "kalda.testing.cluster_threads",
    "Kafka": "kalda.testing.kafka",
    "KafkaCluster": "kalda.testing.kafka",
    "KafkaFactory": "kalda.testing.kafka_factory",
    "KaldaProcess": "kalda.testing.process",
    "KaldaProcessError": "kalda.testing.process",
    "Namespace": "kalda.testing.namespace",
    "ProcessCluster": "kalda.testing.process_cluster",
    "Security": "kalda.testing.security",
    "ZooKeeperProcess": "kalda.testing.process_cluster",
}
"""Where each public name is."""


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'kalda.testing' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
