"""The PySpark data source `kalda`: it reads topics of a Kafka-compatible cluster into Spark without a jar.

It is a client: it imports `kalda.clients`, `kalda.records` and `kalda.common`, never the broker. It does
not write topics. Importing this package does not import pyspark; `kalda.spark.datasource` does.
"""
