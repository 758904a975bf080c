"""What tests of applications need: a real broker that is up in a moment and gone after the test."""

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
