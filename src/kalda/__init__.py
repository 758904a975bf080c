"""Kalda: a streaming platform that speaks Apache Kafka's wire protocol.

Public names are loaded on first use, so that ``import kalda`` is quick and imports no other package::

    from kalda import Cluster

    with Cluster(brokers=3) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})

`Cluster`, `ProcessCluster`, `KaldaProcess` and their errors are those of `kalda.testing`. `KaldaDataSource`
is the data source for Spark; it needs the extra ``kalda[spark]`` and is therefore not in `__all__`. All other
modules are internal and may change without notice.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kalda import spark, testing
    from kalda.clients.errors import ClientError
    from kalda.common.types import TopicPartition
    from kalda.spark.datasource import KaldaDataSource as KaldaDataSource
    from kalda.testing import Cluster, ClusterError, KaldaProcess, KaldaProcessError, ProcessCluster

__version__: Final = "0.1.0"

__all__ = [
    "ClientError",
    "Cluster",
    "ClusterError",
    "KaldaProcess",
    "KaldaProcessError",
    "ProcessCluster",
    "TopicPartition",
    "__version__",
    "spark",
    "testing",
]

_MODULES: Final = {
    "ClientError": "kalda.clients.errors",
    "Cluster": "kalda.testing",
    "ClusterError": "kalda.testing",
    "KaldaDataSource": "kalda.spark.datasource",
    "KaldaProcess": "kalda.testing",
    "KaldaProcessError": "kalda.testing",
    "ProcessCluster": "kalda.testing",
    "TopicPartition": "kalda.common.types",
    "spark": "kalda.spark",
    "testing": "kalda.testing",
}
"""Where each public name is; a module's own name stands for the module."""


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'kalda' has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("kalda"):
            raise
        text = f"kalda.{name} needs the package {error.name}; install kalda with the extra: kalda[spark]"
        raise ModuleNotFoundError(text, name=error.name) from error
    value = module if module.__name__ == f"kalda.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
