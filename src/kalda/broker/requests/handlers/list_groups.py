"""ListGroups (key 16), versions 0-5: returns the groups that this broker coordinates.

v4 filters by state (KIP-518), v5 by type (KIP-848); both ignore case. While partitions are loading, the
response has the groups loaded so far and COORDINATOR_LOAD_IN_PROGRESS.
"""

from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(
    services: BrokerServices, request: ListGroupsRequest, context: RequestContext
) -> Pending[ListGroupsResponse]:
    """Answer when everything in the response is committed."""

    def answer(done: Pending[tuple[ErrorCode, list[ListedGroup]]]) -> ListGroupsResponse:
        code, groups = done.value
        return ListGroupsResponse(error_code=code, groups=groups)

    return services.group_coordinator.list_groups(request.states_filter, request.types_filter).then(answer)


def error_response(request: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    """Return a response with the error."""
    return ListGroupsResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.LIST_GROUPS, versions=(0, 5), handle=handle, error_response=error_response
)
