"""ApiVersions (key 18), versions 0-4: what this broker serves.

From v3 a client says what software it is, in a form that is checked (KIP-511). No features are listed: there
are none to finalise yet, and an empty list keeps clients from using transactions' second protocol. A request
of an unknown version is answered by dispatch, in version 0 with UNSUPPORTED_VERSION and the same list.
"""

import re
from functools import cache
from typing import Final

from kalda.broker.api import ApiHandler, RequestContext
from kalda.broker.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_FROM_VERSION: Final = 3


def handle(
    services: BrokerServices, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """Answer with every API and its versions."""
    if context.api_version >= _SOFTWARE_FROM_VERSION and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return error_response(request, ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=list(_served()))


def error_response(request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    """Answer with an error and no list."""
    return ApiVersionsResponse(error_code=code)


@cache
def _served() -> tuple[ApiVersion, ...]:
    # Imported here: the table of handlers imports this module.
    from kalda.broker.handlers import HANDLERS

    ranges = {handler.key: handler.versions_advertised for handler in HANDLERS}
    return tuple(
        ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in sorted(ranges.items())
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.API_VERSIONS, versions=(0, 4), handle=handle, error_response=error_response
)
