"""AlterPartition (key 56), versions 0-3: a leader of Apache Kafka changes its in-sync replicas (KIP-497).

Only the controller serves it. Other brokers must answer too: to a broker that does not know the request, a
leader of Apache Kafka sends it again and again, and does not look for the controller that was elected since.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import CLUSTER_ACTION
from kalda.cluster.schema import PartitionState
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.driver import ControllerDriver
from kalda.controller.isr_requests import IsrRequest
from kalda.protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)

_TOPIC_IDS_FROM: Final = 2
_BROKER_EPOCHS_FROM: Final = 3
_INELIGIBLE_REPLICA_FROM: Final = 2
"""The first version whose senders know this error."""


async def handle(
    controller: ControllerDriver,
    request: AlterPartitionRequest,
    context: RequestContext,
) -> AlterPartitionResponse:
    """Change the in-sync replicas; return the states that are stored now."""
    version = context.api_version
    names = _names(controller, request.topics, version)
    wanted = {
        TopicPartition(name, each.partition_index): _wanted(each, version)
        for name, topic in zip(names, request.topics, strict=True)
        if name is not None
        for each in topic.partitions
    }
    found = await controller.alter_in_sync_replicas(request.broker_id, request.broker_epoch, wanted)
    return AlterPartitionResponse(
        topics=[
            AlteredTopic(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[
                    _result(
                        each.partition_index,
                        ErrorCode.UNKNOWN_TOPIC_ID
                        if name is None
                        else found[TopicPartition(name, each.partition_index)],
                        version,
                    )
                    for each in topic.partitions
                ],
            )
            for name, topic in zip(names, request.topics, strict=True)
        ]
    )


def error_response(request: AlterPartitionRequest, code: ErrorCode) -> AlterPartitionResponse:
    """Return a response with the error for the whole request."""
    return AlterPartitionResponse(error_code=code)


def _names(controller: ControllerDriver, topics: Sequence[TopicData], version: int) -> list[str | None]:
    if version < _TOPIC_IDS_FROM:
        return [topic.topic_name for topic in topics]
    known = controller.topic_names({topic.topic_id for topic in topics})
    return [known.get(topic.topic_id) for topic in topics]


def _wanted(each: PartitionData, version: int) -> IsrRequest:
    epochs = {state.broker_id: state.broker_epoch for state in each.new_isr_with_epochs}
    isr = (
        [state.broker_id for state in each.new_isr_with_epochs]
        if version >= _BROKER_EPOCHS_FROM
        else each.new_isr
    )
    return IsrRequest(
        each.leader_epoch,
        each.partition_epoch,
        tuple(isr),
        is_leader_recovering=each.leader_recovery_state != 0,
        broker_epochs=epochs,
    )


def _result(index: int, outcome: PartitionState | ErrorCode, version: int) -> AlteredPartition:
    if isinstance(outcome, ErrorCode):
        if outcome is ErrorCode.INELIGIBLE_REPLICA and version < _INELIGIBLE_REPLICA_FROM:
            outcome = ErrorCode.OPERATION_NOT_ATTEMPTED
        return AlteredPartition(partition_index=index, error_code=outcome)
    return AlteredPartition(
        partition_index=index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=int(outcome.leader_recovering),
        partition_epoch=outcome.version,
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.ALTER_PARTITION,
    versions=(0, 3),
    build=lambda services: partial(handle, services.controller),
    error_response=error_response,
    access=CLUSTER_ACTION,
    is_of_brokers=True,
    is_throttled=False,
)
