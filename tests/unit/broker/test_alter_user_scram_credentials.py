"""The cost of AlterUserScramCredentials, for which a client needs no credentials in an open cluster."""

from collections.abc import Coroutine, Iterator
from typing import Any, cast

from kalda.broker.requests.handlers import alter_user_scram_credentials
from kalda.broker.security.scram_credentials import ScramCredentials
from kalda.common.errors import ErrorCode
from kalda.controller.driver import ControllerDriver
from kalda.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from tests.unit.broker.admin_fakes import context

USERS = 300


class CountedList(list[ScramCredentialDeletion]):
    passes = 0

    def __iter__(self) -> Iterator[ScramCredentialDeletion]:
        self.passes += 1
        return super().__iter__()


class ActiveController:
    is_active = True


class NoCredentials:
    def mechanisms(self, _: str) -> set[int]:
        return set()


async def test_the_cost_of_a_request_is_linear_in_its_users() -> None:
    """Once for each user, 160 KB held the event loop for a minute."""
    deletions = CountedList(
        ScramCredentialDeletion(name=f"u{number}", mechanism=1) for number in range(USERS)
    )
    controller = cast(ControllerDriver, ActiveController())
    credentials = cast(ScramCredentials, NoCredentials())
    request = AlterUserScramCredentialsRequest(deletions=deletions)
    answer = alter_user_scram_credentials.handle(controller, credentials, request, context(0))
    response = await cast(Coroutine[Any, Any, Any], answer)
    assert [ErrorCode.RESOURCE_NOT_FOUND] * USERS == [each.error_code for each in response.results]
    assert deletions.passes <= 2
