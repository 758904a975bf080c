"""The PySpark data source `kalda`: reads and writes topics of a cluster without a jar.

It is a client: it imports `kalda.clients`, `kalda.records` and `kalda.common`, never the broker. Importing
this package does not import pyspark; `kalda.spark.datasource` does.
"""
