"""Implements the admin client's operations on users and their SCRAM credentials (KIP-554).

It holds the methods, the values that they take and return, and the requests and responses.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import AnyBroker, Controller
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kalda.protocol.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion as Deletion,
)
from kalda.protocol.messages.alter_user_scram_credentials import (
    ScramCredentialUpsertion as Upsertion,
)
from kalda.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from kalda.runtime.system.random import SYSTEM_RANDOM

DEFAULT_ITERATIONS: Final = 4096


@public
class ScramMechanism(Enum):
    """A mechanism for which a cluster keeps credentials."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


@public
@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """A credential of a user, without its secret."""

    mechanism: ScramMechanism
    iterations: int


@public
@dataclass(frozen=True, slots=True)
class ScramCredentialUpsertion:
    """A credential to set. The password is salted and hashed here; it is never sent."""

    user: str
    mechanism: ScramMechanism
    password: str
    iterations: int = DEFAULT_ITERATIONS
    salt: bytes | None = None
    """Random, unless given."""

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion({self.user!r}, {self.mechanism}, iterations={self.iterations})"


@public
@dataclass(frozen=True, slots=True)
class ScramCredentialDeletion:
    """A credential to delete."""

    user: str
    mechanism: ScramMechanism


ScramCredentialAlteration = ScramCredentialUpsertion | ScramCredentialDeletion


class UserMethods(AdminMethods):
    """Describes and alters the SCRAM credentials of users (brokers 2.7 and newer, KIP-554)."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, list[ScramCredentialInfo]]:
        """Describe by which mechanisms users can log in.

        Args:
            users: The users; None for all that have a credential.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By user, the credentials without their secrets, or the error: RESOURCE_NOT_FOUND.

        Raises:
            ClientError: one of them failed and `outcomes` is not set, or `users` is
                None and no broker answered in time.
        """
        if users is not None:
            return await self._run(DescribeUser(), users, timeout_ms, outcomes=outcomes)
        found = await self._run_one(DescribeUsers(), timeout_ms)
        return Outcomes(found)

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[ScramCredentialAlteration],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Set and delete credentials. Passwords are hashed by this client and never sent.

        Args:
            alterations: What to set and delete; the changes of one user are made together or not at all.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By user, None or the error: RESOURCE_NOT_FOUND, UNACCEPTABLE_CREDENTIAL and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        operation = AlterUsers(alterations)
        return await self._run(operation, operation.users, timeout_ms, outcomes=outcomes)


Credentials = dict[str, list[ScramCredentialInfo]]


class DescribeUsers(AdminOperation[None, Credentials]):
    """Describes all users that have credentials. Its only key is None."""

    title = "describe users"
    route = AnyBroker()

    @override
    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, Credentials]]:
        def read(response: DescribeUserScramCredentialsResponse, answers: Answers[None, Credentials]) -> None:
            if response.error_code:
                answers.fail(None, response.error_code, response.error_message)
                return
            answers.succeed(None, {each.user: _infos(each.credential_infos) for each in response.results})

        message = DescribeUserScramCredentialsRequest(users=None)
        yield AdminRequest.of(message, DescribeUserScramCredentialsResponse, keys, read)

    @override
    def what(self, key: None) -> str:
        return self.title


class DescribeUser(AdminOperation[str, list[ScramCredentialInfo]]):
    """Describes users by name."""

    title = "describe user"
    route = AnyBroker()

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, list[ScramCredentialInfo]]]:
        """Ask for all names in one request."""

        def read(
            response: DescribeUserScramCredentialsResponse,
            answers: Answers[str, list[ScramCredentialInfo]],
        ) -> None:
            if response.error_code:
                for key in keys:
                    answers.fail(key, response.error_code, response.error_message)
                return
            for each in response.results:
                if each.error_code:
                    answers.fail(each.user, each.error_code, each.error_message)
                else:
                    answers.succeed(each.user, _infos(each.credential_infos))

        message = DescribeUserScramCredentialsRequest(users=[UserName(name=key) for key in keys])
        yield AdminRequest.of(message, DescribeUserScramCredentialsResponse, keys, read)


class AlterUsers(AdminOperation[str, None]):
    """Sets and deletes credentials; the keys are users."""

    title = "alter credentials of user"
    route = Controller()

    def __init__(self, alterations: Iterable[ScramCredentialAlteration]) -> None:
        self._alterations: Final = list(alterations)

    @property
    def users(self) -> list[str]:
        """The users that are altered."""
        return list(dict.fromkeys(each.user for each in self._alterations))

    def requests(self, keys: Sequence[str], context: RequestContext) -> Iterable[AdminRequest[str, None]]:
        """Send all users in one request."""
        # Imported where it is needed: its regular expressions take 3 ms of the start of each command.
        from kalda.security.sasl.scram import MECHANISM_NUMBERS

        mine = [each for each in self._alterations if each.user in keys]
        message = AlterUserScramCredentialsRequest(
            deletions=[
                Deletion(name=each.user, mechanism=MECHANISM_NUMBERS[each.mechanism.value])
                for each in mine
                if isinstance(each, ScramCredentialDeletion)
            ],
            upsertions=[_upsertion(each) for each in mine if isinstance(each, ScramCredentialUpsertion)],
        )

        def read(response: AlterUserScramCredentialsResponse, answers: Answers[str, None]) -> None:
            for each in response.results:
                if each.error_code:
                    answers.fail(each.user, each.error_code, each.error_message)
                else:
                    answers.succeed(each.user, None)

        yield AdminRequest.of(message, AlterUserScramCredentialsResponse, keys, read)


def _upsertion(each: ScramCredentialUpsertion) -> Upsertion:
    from kalda.security.sasl.scram import HASHES, MECHANISM_NUMBERS, SALT_BYTES

    mechanism = each.mechanism.value
    salt = SYSTEM_RANDOM.randbytes(SALT_BYTES) if each.salt is None else each.salt
    # A broker refuses fewer than one iteration by its own bounds; hashlib would raise.
    iterations = max(1, each.iterations)
    return Upsertion(
        name=each.user,
        mechanism=MECHANISM_NUMBERS[mechanism],
        iterations=each.iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(HASHES[mechanism], each.password.encode(), salt, iterations),
    )


def _infos(credentials: Iterable[CredentialInfo]) -> list[ScramCredentialInfo]:
    from kalda.security.sasl.scram import MECHANISM_NAMES

    return [
        ScramCredentialInfo(ScramMechanism(MECHANISM_NAMES[each.mechanism]), each.iterations)
        for each in credentials
        if each.mechanism in MECHANISM_NAMES
    ]
