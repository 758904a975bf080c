"""AlterUserScramCredentials (key 51), version 0: sets and deletes users' SCRAM credentials (KIP-554).

A user with an impossible change keeps all credentials; the changes of other users are made. Only the
controller serves it.
"""

from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.broker.security.scram_credentials import ScramCredentials
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import between
from kalda.controller.driver import ControllerDriver
from kalda.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from kalda.security.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NAMES,
    ScramCredential,
)


@dataclass(slots=True)
class _Changes:
    """The changes of one user."""

    deletions: list[int] = field(default_factory=list)
    """Their mechanisms."""
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)


def handle(
    controller: ControllerDriver,
    scram_credentials: ScramCredentials,
    request: AlterUserScramCredentialsRequest,
    context: RequestContext,
) -> AlterUserScramCredentialsResponse | Coroutine[None, None, AlterUserScramCredentialsResponse]:
    """Return NOT_CONTROLLER if this broker is not the controller; else change the credentials."""
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    return _alter(scram_credentials, request)


def error_response(
    request: AlterUserScramCredentialsRequest, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    """Return a response with the error for each user."""
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=code.message)
            for user in _users(request)
        ]
    )


async def _alter(
    scram_credentials: ScramCredentials, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    results = []
    changes: dict[str, _Changes] = {}
    for count, deletion in enumerate(request.deletions):
        await between(count)
        changes.setdefault(deletion.name, _Changes()).deletions.append(deletion.mechanism)
    for count, upsertion in enumerate(request.upsertions):
        await between(count)
        changes.setdefault(upsertion.name, _Changes()).upsertions.append(upsertion)
    for count, (user, changed) in enumerate(changes.items()):
        await between(count)
        result = AlterUserScramCredentialsResult(user=user)
        try:
            await _alter_user(scram_credentials, user, changed)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


async def _alter_user(scram_credentials: ScramCredentials, user: str, changes: _Changes) -> None:
    """Make all changes of one user.

    Raises:
        ApiError: one of them is not possible; none was made.
    """
    if not user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    deletions, upsertions = changes.deletions, changes.upsertions
    numbers = [*deletions, *(each.mechanism for each in upsertions)]
    if any(number not in MECHANISM_NAMES for number in numbers):
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if max(Counter(numbers).values()) > 1:
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    credentials = {}
    for each in upsertions:
        if each.iterations < ITERATIONS_MIN:
            raise ApiError(
                ErrorCode.UNACCEPTABLE_CREDENTIAL,
                f"Too few iterations: {each.iterations} is below {ITERATIONS_MIN}",
            )
        if each.iterations > ITERATIONS_MAX:
            raise ApiError(
                ErrorCode.UNACCEPTABLE_CREDENTIAL,
                f"Too many iterations: {each.iterations} is above {ITERATIONS_MAX}",
            )
        mechanism = MECHANISM_NAMES[each.mechanism]
        credentials[mechanism] = ScramCredential.of_salted_password(
            mechanism, each.salted_password, each.salt, each.iterations
        )
    existing = scram_credentials.mechanisms(user)
    if any(MECHANISM_NAMES[number] not in existing for number in deletions):
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    await scram_credentials.alter(user, [MECHANISM_NAMES[number] for number in deletions], credentials)


def _users(request: AlterUserScramCredentialsRequest) -> list[str]:
    """Return each user of a request once."""
    names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    return list(dict.fromkeys(names))


HANDLER: Final = ApiHandler(
    key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.controller, services.access.scram_credentials),
    error_response=error_response,
    access=ALTER_CLUSTER,
    audit=lambda request: (each.name for each in chain(request.deletions, request.upsertions)),
)
