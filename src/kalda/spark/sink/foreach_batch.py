"""Writes the batches of a streaming query from `foreachBatch`, each exactly once.

Spark accepts no output mode ``update`` for a sink in Python. With `foreachBatch` it does, and this module
passes the ids of query and batch on to the batch writer, as ``txn.id`` and ``txn.version``::

    totals.writeStream.outputMode("update").foreachBatch(topic_writer(options)).start()
"""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from kalda.spark.sink.task_identity import QUERY_ID_PROPERTY, MissingIdentityError


def topic_writer(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes to topics as ``format("kalda")`` does.

    Args:
        options: The options of the sink. ``delivery`` is exactly-once-batch unless it is set: the tasks of a
            repeated batch may be cut in another way.

    Raises:
        MissingIdentityError: on call, if Spark does not name the running query.
    """

    def write(frame: DataFrame, batch_id: int) -> None:
        query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
        if not query_id:
            raise MissingIdentityError(
                f"this Spark does not set {QUERY_ID_PROPERTY} while foreachBatch runs; write the frame with "
                "`txn.id`, a name that is the same after a restart, and `txn.version`, the batch id"
            )
        writer = frame.write.format("kalda").options(**options)
        writer.option("txn.id", query_id).option("txn.version", str(batch_id)).mode("append").save()

    return write
