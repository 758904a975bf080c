"""The PySpark data source `kalda`: reads and writes topics of a cluster without a jar.

It is a client: it imports `kalda.clients`, `kalda.records` and `kalda.common`, never the broker. Importing
this package does not import pyspark; `kalda.spark.datasource` does, and so do the functions of columns here:

    from kalda.spark import from_registry

    rows = topic.select(from_registry("value", subject="orders-value", registry_url="http://127.0.0.1:8080"))
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kalda.spark.registry_columns import RegistryValueError as RegistryValueError
    from kalda.spark.registry_columns import from_registry as from_registry
    from kalda.spark.registry_columns import to_registry as to_registry

__all__ = ["RegistryValueError", "from_registry", "to_registry"]


def __getattr__(name: str) -> object:
    """Load a function of columns on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'kalda.spark' has no attribute {name!r}")
    from kalda.spark import registry_columns

    value: object = getattr(registry_columns, name)
    globals()[name] = value
    return value
