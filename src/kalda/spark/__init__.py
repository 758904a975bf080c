"""The PySpark data source `kalda`: it reads and writes topics of a Kafka-compatible cluster without a jar.

`source` reads and `sink` writes. Both are clients: they import `kalda.clients`, `kalda.records` and
`kalda.formats`, never the broker. Importing this package does not import pyspark;
`kalda.spark.datasource` does.
"""
