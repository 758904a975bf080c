"""Implements the requests and responses of admin calls on users' SCRAM credentials. Sans-IO."""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.routes import AnyBroker, Controller
from kalda.clients.admin.users import (
    ScramCredentialAlteration,
    ScramCredentialDeletion,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
    ScramMechanism,
)
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
from kalda.security.sasl.scram import HASHES, MECHANISM_NAMES, MECHANISM_NUMBERS, SALT_BYTES

Credentials = dict[str, list[ScramCredentialInfo]]


class DescribeUsers(AdminOperation[None, Credentials]):
    """Describes all users that have credentials. Its only key is None."""

    title = "describe users"
    route = AnyBroker()

    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, Credentials]]:
        """Ask for all."""

        def read(response: DescribeUserScramCredentialsResponse, answers: Answers[None, Credentials]) -> None:
            if response.error_code:
                answers.fail(None, response.error_code, response.error_message)
                return
            answers.succeed(None, {each.user: _infos(each.credential_infos) for each in response.results})

        message = DescribeUserScramCredentialsRequest(users=None)
        yield AdminRequest.of(message, DescribeUserScramCredentialsResponse, keys, read)

    def what(self, key: None) -> str:
        """Name the call."""
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
    mechanism = each.mechanism.value
    salt = secrets.token_bytes(SALT_BYTES) if each.salt is None else each.salt
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
    return [
        ScramCredentialInfo(ScramMechanism(MECHANISM_NAMES[each.mechanism]), each.iterations)
        for each in credentials
        if each.mechanism in MECHANISM_NAMES
    ]
