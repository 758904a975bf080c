"""Kalda on Spark: the Python data source `kalda`, and what stands on it.

Importing this package does not import pyspark; `kalda.spark.datasource` does.
"""
