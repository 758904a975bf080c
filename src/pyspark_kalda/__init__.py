"""Spark imports packages whose names begin with `pyspark_` and registers their `DefaultSource`."""

from kalda.spark.datasource import KaldaDataSource as DefaultSource

__all__ = ["DefaultSource"]
