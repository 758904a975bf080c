"""Runs real brokers for the tests of an application, for the length of a ``with`` block.

`Cluster` runs brokers in the test's own process and starts fastest. `ProcessCluster` runs each broker in a
process of its own. `KaldaProcess` runs the command ``kalda start``. The ``bootstrap`` of each is the
``bootstrap.servers`` of a Kafka client. `Security` gives a cluster encryption, logins and ACLs.

They run `kalda.broker` and `kalda.zookeeper.server`, use the sessions of `kalda.zookeeper.client`, and wrap
the connections of `kalda.net.peer` and the files of `kalda.runtime.system` to inject failures. The package
contains no mocks, and nothing in the broker depends on it.
"""

from kalda.testing.cluster import Cluster
from kalda.testing.cluster_threads import ClusterError
from kalda.testing.namespace import Namespace
from kalda.testing.process import KaldaProcess, KaldaProcessError
from kalda.testing.process_cluster import BrokerProcess, ProcessCluster, ZooKeeperProcess
from kalda.testing.security import Security

__all__ = [
    "BrokerProcess",
    "Cluster",
    "ClusterError",
    "KaldaProcess",
    "KaldaProcessError",
    "Namespace",
    "ProcessCluster",
    "Security",
    "ZooKeeperProcess",
]
