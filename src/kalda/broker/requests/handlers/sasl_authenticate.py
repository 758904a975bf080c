"""SaslAuthenticate (key 36), versions 0-2: refuses the request, because no login is in progress.

Logins are handled by `kalda.broker.security.sasl_authenticator` before requests reach the dispatcher. What
arrives here comes from a client that has logged in already, or through a listener without SASL.
"""

from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Return ILLEGAL_SASL_STATE."""
    return error_response(request, ErrorCode.ILLEGAL_SASL_STATE)


def error_response(request: SaslAuthenticateRequest, code: ErrorCode) -> SaslAuthenticateResponse:
    """Return a response with the error."""
    return SaslAuthenticateResponse(error_code=code, error_message=code.message)


HANDLER: Final = ApiHandler(
    key=ApiKey.SASL_AUTHENTICATE,
    versions=(0, 2),
    build=lambda _: handle,
    error_response=error_response,
    access=None,
    is_throttled=False,
)
