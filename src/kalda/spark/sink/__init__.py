"""The sink `kalda`: it writes the rows of batch and streaming queries to topics.

`options` parses the options, `rows` splits Arrow batches by topic, and `writers` has the classes that Spark
drives. Importing this package imports neither pyspark nor pyarrow; its modules do.
"""
