"""A look at a group that asks every broker: whoever coordinates it answers.

An application's admin client is not used here: it keeps time-outs and retries of its own, and this must tell
what is so at this moment, while brokers come and go.
"""

from kalda.common.clock import SystemClock
from kalda.common.errors import ErrorCode
from kalda.net.client.broker_connection import BrokerConnection
from kalda.net.client.client_errors import ClientError
from kalda.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kalda.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

LOOK_SECONDS = 1.0


def look(bootstrap: str, group: str, protocol: str) -> tuple[str, list[str]]:
    """Return a group's state and its members' client ids; why nobody told, and none, where nobody did."""
    found = "nobody coordinates it"
    for address in bootstrap.split(","):
        try:
            error_code, state, members = _ask(address, group, protocol)
        except ClientError as error:
            found = str(error)
            continue
        if error_code == ErrorCode.NONE:
            return state, sorted(members)
        if error_code != ErrorCode.NOT_COORDINATOR:
            found = ErrorCode(error_code).name
    return found, []


def _ask(address: str, group: str, protocol: str) -> tuple[int, str, list[str]]:
    host, _, port = address.rpartition(":")
    clock = SystemClock()
    deadline = clock.monotonic() + LOOK_SECONDS
    connection = BrokerConnection.open(
        host, int(port), client_id="look", receive_buffer_bytes=-1, deadline=deadline, clock=clock
    )
    try:
        if protocol == "consumer":
            request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
            (told,) = connection.call(request, ConsumerGroupDescribeResponse, deadline).groups
            return told.error_code, told.group_state, [member.client_id for member in told.members]
        classic = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
        (described,) = connection.call(classic, DescribeGroupsResponse, deadline).groups
        return described.error_code, described.group_state, [member.client_id for member in described.members]
    finally:
        connection.close()
