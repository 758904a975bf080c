"""A look at a group that asks every broker: whoever coordinates it answers.

An application's admin client is not used here: it keeps time-outs and retries of its own, and this must tell
what is so at this moment, while brokers come and go.
"""

import asyncio

from kalda.common.api_keys import ApiKey
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
            error_code, state, members = asyncio.run(_ask(address, group, protocol))
        except ClientError as error:
            found = str(error)
            continue
        if error_code == ErrorCode.NONE:
            return state, sorted(members)
        if error_code != ErrorCode.NOT_COORDINATOR:
            found = ErrorCode(error_code).name
    return found, []


async def _ask(address: str, group: str, protocol: str) -> tuple[int, str, list[str]]:
    host, _, port = address.rpartition(":")
    connection = await BrokerConnection.open(host, int(port), client_id="look", timeout_seconds=LOOK_SECONDS)
    try:
        if protocol == "consumer":
            request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
            version = connection.versions.latest(ApiKey.CONSUMER_GROUP_DESCRIBE)
            response = await connection.send(request, version, LOOK_SECONDS)
            assert isinstance(response, ConsumerGroupDescribeResponse)
            (found,) = response.groups
            return found.error_code, found.group_state, [member.client_id for member in found.members]
        classic = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
        version = connection.versions.latest(ApiKey.DESCRIBE_GROUPS)
        answer = await connection.send(classic, version, LOOK_SECONDS)
        assert isinstance(answer, DescribeGroupsResponse)
        (described,) = answer.groups
        return described.error_code, described.group_state, [member.client_id for member in described.members]
    finally:
        connection.close()
