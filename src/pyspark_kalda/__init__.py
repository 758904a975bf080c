"""Registers the data source with Spark, which loads `DefaultSource` from each `pyspark_*` package."""

from kalda.spark.datasource import KaldaDataSource as DefaultSource

__all__ = ["DefaultSource"]
