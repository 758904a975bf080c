"""WriteTxnMarkers (key 27), versions 0-2: appends the markers that end transactions to the logs led here.

Transaction coordinators send it, and so does the tool that aborts a hanging transaction, with coordinator
epoch -1. v1 is flexible. v2 adds the transaction version: a marker of version 2 has a higher epoch than the
records of the transaction, or gets INVALID_PRODUCER_EPOCH (KIP-1228). A marker of a replaced coordinator gets
TRANSACTION_COORDINATOR_FENCED, one without a producer INVALID_REQUEST; the other markers of the request are
appended. A partition that a marker names twice gets one marker and one result.
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.checks import transactions as transaction_checks
from kalda.broker.transactions.marker_appends import Codes, Marker, MarkerAppends
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn, result_of
from kalda.common.types import TopicPartition
from kalda.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Answer = Pending[WriteTxnMarkersResponse | Steps[WriteTxnMarkersResponse]]


def handle(
    marker_appends: MarkerAppends, request: WriteTxnMarkersRequest, context: RequestContext
) -> Answer | Steps[Answer]:
    """Append the markers; answer when they are replicated."""
    return first_turn(_write(marker_appends, request))


def _write(marker_appends: MarkerAppends, request: WriteTxnMarkersRequest) -> Steps[Answer]:
    answer: Answer = Pending()
    markers = []
    for each in request.markers:
        marker = yield from _read(each)
        markers.append(marker)

    def written(codes: list[Codes]) -> None:
        answer.complete(first_turn(_respond(markers, codes)))

    yield from marker_appends.write_in_steps(markers, written)
    return answer


def _respond(markers: list[Marker], codes: list[Codes]) -> Steps[WriteTxnMarkersResponse]:
    response = WriteTxnMarkersResponse()
    for marker, each in zip(markers, codes, strict=True):
        result = yield from _result(marker, each)
        response.markers.append(result)
    return response


def _read(marker: WritableTxnMarker) -> Steps[Marker]:
    partitions: dict[TopicPartition, None] = {}
    yield
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield
            partitions[TopicPartition(topic.name, index)] = None
    return Marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        tuple(partitions),
        marker.transaction_version,
    )


def _result(marker: Marker, codes: Codes) -> Steps[WritableTxnMarkerResult]:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for each in marker.partitions:
        yield
        topic = topics.get(each.topic)
        if topic is None:
            topic = topics[each.topic] = WritableTxnMarkerTopicResult(name=each.topic)
        topic.partitions.append(
            WritableTxnMarkerPartitionResult(partition_index=each.partition, error_code=codes[each])
        )
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=list(topics.values()))


def error_response(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """Return a response with the error for each partition."""
    markers = [result_of(_read(each)) for each in request.markers]
    return result_of(_respond(markers, [dict.fromkeys(marker.partitions, code) for marker in markers]))


HANDLER: Final = ApiHandler(
    key=ApiKey.WRITE_TXN_MARKERS,
    versions=(0, 2),
    build=lambda services: partial(handle, services.marker_appends),
    error_response=error_response,
    access=transaction_checks.write_txn_markers,
    is_throttled=False,
)
