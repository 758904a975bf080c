"""Sends records of Produce requests to another topic than the client names, for canaries (`RoutedRequest`).

The response names the client's own topic again. A batch of records goes as a whole. Where some batches of a
client go to the other topic because of their headers, the batches of both topics lose the producer id and
the sequence numbers of an idempotent producer, which would have gaps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kalda.faults.messages import TopicNames, name_of
from kalda.protocol.messages.produce import TopicProduceData
from kalda.records import batch as record_batch
from kalda.records.errors import RecordsError
from kalda.records.record import iter_records

_MAGIC_POSITION: Final = 16
_MAGIC_WITH_HEADERS: Final = 2


@dataclass(slots=True)
class RoutedRequest:
    """The partitions of a request that were routed to another topic."""

    to: str
    partitions: dict[int, str] = field(default_factory=dict)
    """The topic that the client named, by partition."""

    def undo(self, response: Any, names: TopicNames) -> None:
        """Name the client's own topics in the response."""
        for topic in list(response.responses):
            if name_of(topic, names) != self.to:
                continue
            for partition in list(topic.partition_responses):
                own = self.partitions.get(partition.index)
                if own is None:
                    continue
                topic.partition_responses.remove(partition)
                self._entry(response, topic, own, names).partition_responses.append(partition)
            if not topic.partition_responses:
                response.responses.remove(topic)

    @staticmethod
    def _entry(response: Any, topic: Any, own: str, names: TopicNames) -> Any:
        for each in response.responses:
            if name_of(each, names) == own:
                return each
        entry = type(topic)(name=own if topic.name else "", topic_id=names.topic_id(own))
        response.responses.append(entry)
        return entry


def route(request: Any, names: TopicNames, to: str, is_routed: Callable[[str, Any], bool]) -> RoutedRequest:
    """Move the chosen partitions of a request to another topic, and return which ones.

    What the client itself sends to the other topic goes there; a partition that would meet it is not routed.
    """
    routed = RoutedRequest(to)
    taken = {
        partition.index
        for topic in request.topic_data
        if name_of(topic, names) == to
        for partition in topic.partition_data
    }
    moved = []
    for topic in request.topic_data:
        name = name_of(topic, names)
        for partition in list(topic.partition_data):
            if name == to or partition.index in taken or not is_routed(name, partition):
                continue
            taken.add(partition.index)
            routed.partitions[partition.index] = name
            topic.partition_data.remove(partition)
            moved.append(partition)
    request.topic_data = [topic for topic in request.topic_data if topic.partition_data]
    if moved:
        same = next((topic for topic in request.topic_data if name_of(topic, names) == to), None)
        if same is None:
            same = TopicProduceData(name=to, topic_id=names.topic_id(to), partition_data=[])
            request.topic_data.append(same)
        same.partition_data.extend(moved)
    return routed


def strip_producer(request: Any) -> None:
    """Remove the fields of an idempotent producer from the batches of a request."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            partition.records = _stripped(partition.records)


def has_header(records: Any, text: str) -> bool:
    """Return whether a record of a batch has a header, ``name`` or ``name=value``."""
    if not _is_batch(records):
        return False
    name, equals, value = text.partition("=")
    try:
        return any(
            key == name and (not equals or found == value.encode())
            for record in iter_records(records)
            for key, found in record.headers
        )
    except RecordsError:
        # The broker refuses the batch.
        return False


def producer_of(request: Any) -> int:
    """Return the producer id of the first batch; -1 if there is none."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if _is_batch(partition.records):
                return record_batch.read_producer(partition.records)[0]
    return -1


def _stripped(records: Any) -> Any:
    if not _is_batch(records):
        return records
    changed = bytearray(records)
    record_batch.set_producer_state(changed, -1, -1, -1, is_transactional=False)
    return changed


def _is_batch(records: Any) -> bool:
    """Return whether records are a batch of the form that has headers."""
    return (
        records is not None
        and len(records) >= record_batch.HEADER_SIZE
        and records[_MAGIC_POSITION] == _MAGIC_WITH_HEADERS
    )
