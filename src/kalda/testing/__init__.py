"""Real brokers for tests of applications: up in a moment, gone after the test.

`Cluster` runs brokers in the test's own process and is the quickest. `ProcessCluster` runs each broker in a
process of its own. `KaldaProcess` runs the command ``kalda start``. All are context managers whose
``bootstrap`` is what a Kafka client takes as ``bootstrap.servers``.
"""

from kalda.testing.cluster import Cluster
from kalda.testing.cluster_threads import ClusterError
from kalda.testing.process import KaldaProcess, KaldaProcessError
from kalda.testing.process_cluster import BrokerProcess, ProcessCluster, ZooKeeperProcess

__all__ = [
    "BrokerProcess",
    "Cluster",
    "ClusterError",
    "KaldaProcess",
    "KaldaProcessError",
    "ProcessCluster",
    "ZooKeeperProcess",
]
