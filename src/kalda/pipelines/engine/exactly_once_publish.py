"""Publishes the records of a batch to a topic exactly once, on any cluster that has transactions.

The transaction holds the records and a mark: the batch's number as a committed offset of a group. A repeat
reads the mark and does nothing. The transactional id is initialized before the mark is read, which fences an
earlier run.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from kalda.clients.admin.admin import Admin
from kalda.clients.producer.producer import Producer
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.pipelines.dlq.replay import REQUEST_BYTES_MAX

_ACK_TIMEOUT_S: Final = 120.0


def publish_once(
    properties: Mapping[str, str],
    *,
    topic: str,
    name: str,
    query_id: str,
    batch_id: int,
    batches: Iterable[pa.RecordBatch],
) -> bool:
    """Send Arrow rows in one transaction, unless that was done for this batch; return whether it was now.

    Args:
        properties: the cluster's settings.
        topic: where the rows go; their columns are those of `Producer.send_arrow`.
        name: the transactional id and the group of the mark; one for each query and output.
        query_id: a mark of another query counts as none.
        batch_id: the batch.
        batches: the rows; consumed only if they are sent.

    Raises:
        ClientError: the cluster did not take the rows; nothing is visible.
    """
    assert batch_id >= 0, f"batch {batch_id}"
    mark = TopicPartition(topic, 0)
    settings = {"max.request.size": REQUEST_BYTES_MAX, **properties}
    settings |= {"client.id": name, "transactional.id": name, "acks": "all"}
    with Producer.from_config(settings) as producer:
        producer.init_transactions()
        with Admin.from_config({**properties, "client.id": name}) as admin:
            found = admin.list_consumer_group_offsets({name: [mark]}, require_stable=True)[name][mark]
        if found is not None and found.metadata == query_id and found.offset > batch_id:
            return False
        with producer.transaction():
            futures = [producer.send_arrow(topic, each) for each in batches]
            for future in futures:
                future.result(_ACK_TIMEOUT_S)
            producer.send_offsets_to_transaction({mark: OffsetAndMetadata(batch_id + 1, query_id)}, name)
    return True
