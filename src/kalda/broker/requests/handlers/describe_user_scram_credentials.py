"""DescribeUserScramCredentials (key 50), version 0: the mechanisms by which users can log in (KIP-554)."""

from collections import Counter
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import DESCRIBE_CLUSTER
from kalda.broker.security.scram_credentials import ScramCredentials
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kalda.security.sasl.scram import MECHANISM_NUMBERS


def handle(
    scram_credentials: ScramCredentials, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse | Steps[DescribeUserScramCredentialsResponse]:
    """Return the mechanisms of the named users, or of all."""
    return first_turn(_describe_each(scram_credentials, request))


def _describe_each(
    credentials: ScramCredentials, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    counts = Counter(user.name for user in request.users or ())
    names = list(counts) or credentials.users()
    results = []
    for name in names:
        yield
        result = DescribeUserScramCredentialsResult(user=name)
        mechanisms = credentials.mechanisms(name)
        if counts[name] > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = f"User {name} is named twice in one request."
        elif not mechanisms:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"User {name} has no SCRAM credential."
        else:
            result.credential_infos = [
                CredentialInfo(mechanism=MECHANISM_NUMBERS[mechanism], iterations=iterations)
                for mechanism, iterations in mechanisms.items()
            ]
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)


def error_response(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    """Return a response with the error."""
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=code.message)


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.access.scram_credentials),
    error_response=error_response,
    access=DESCRIBE_CLUSTER,
)
