"""CreateAcls and DeleteAcls while ZooKeeper is away: a code after which clients try again."""

from collections.abc import Coroutine
from typing import cast

import pytest

from kalda.broker.requests.handlers import create_acls, delete_acls
from kalda.broker.security.authorizer import Authorizer
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kalda.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kalda.security.acl.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.zookeeper.errors import (
    BadArgumentsError,
    ConnectionLossError,
    SessionExpiredError,
    ZooKeeperError,
)
from tests.unit.broker.admin_fakes import context

BINDING = AclBinding(
    ResourcePattern(ResourceType.TOPIC, "t"),
    AccessControlEntry("User:alice", "*", AclOperation.READ, PermissionType.ALLOW),
)
CODES = [
    (ConnectionLossError("lost"), ErrorCode.REQUEST_TIMED_OUT),
    (SessionExpiredError("expired"), ErrorCode.REQUEST_TIMED_OUT),
    (BadArgumentsError("no such name"), ErrorCode.UNKNOWN_SERVER_ERROR),
]
CONTEXT = context(3)


class FailingAuthorizer:
    """Knows one ACL and cannot write."""

    def __init__(self, error: ZooKeeperError) -> None:
        self._error = error

    def find(self, _: object) -> list[AclBinding]:
        return [BINDING]

    async def create(self, *_: object) -> None:
        raise self._error

    async def refresh(self, _: object) -> None:
        raise self._error

    async def delete(self, *_: object) -> None:
        raise self._error


class StaleAuthorizer:
    """Does not know an ACL that another broker has created, until it reads it."""

    def __init__(self) -> None:
        self.known: list[AclBinding] = []
        self.deleted: list[AclBinding] = []

    def find(self, _: object) -> list[AclBinding]:
        return self.known

    async def refresh(self, pattern: ResourcePattern) -> None:
        if pattern == BINDING.pattern:
            self.known = [BINDING]

    async def delete(self, pattern: ResourcePattern, entries: list[AccessControlEntry]) -> None:
        self.deleted += [AclBinding(pattern, entry) for entry in entries]


def authorizer(error: ZooKeeperError) -> Authorizer:
    return cast(Authorizer, FailingAuthorizer(error))


@pytest.mark.parametrize(("error", "code"), CODES)
async def test_created_acls_are_tried_again(error: ZooKeeperError, code: ErrorCode) -> None:
    creation = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="t",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=AclOperation.READ,
        permission_type=PermissionType.ALLOW,
    )
    response = create_acls.handle(authorizer(error), CreateAclsRequest(creations=[creation]), CONTEXT)
    assert isinstance(response, Coroutine)
    [result] = (await response).results
    assert code == result.error_code
    assert f"ACLs of Literal Topic t could not be written: {error}" == result.error_message


@pytest.mark.parametrize(("error", "code"), CODES)
async def test_deleted_acls_are_tried_again(error: ZooKeeperError, code: ErrorCode) -> None:
    wanted = DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        pattern_type_filter=PatternType.ANY,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )
    response = delete_acls.handle(authorizer(error), DeleteAclsRequest(filters=[wanted]), CONTEXT)
    assert isinstance(response, Coroutine)
    [result] = (await response).filter_results
    assert ErrorCode.NONE == result.error_code
    [matching] = result.matching_acls
    assert code == matching.error_code
    assert f"ACLs of Literal Topic t could not be deleted: {error}" == matching.error_message


async def test_an_acl_that_the_broker_does_not_know_yet_is_deleted() -> None:
    """Else the right would stay, and the answer be that there was none."""
    stale = StaleAuthorizer()
    response = delete_acls.handle(cast(Authorizer, stale), DeleteAclsRequest(filters=[EXACT]), CONTEXT)
    assert isinstance(response, Coroutine)
    [result] = (await response).filter_results
    assert ["User:alice"] == [each.principal for each in result.matching_acls]
    assert [BINDING] == stale.deleted


@pytest.mark.parametrize(("error", "code"), [*CODES[:2], (CODES[2][0], ErrorCode.NONE)])
async def test_a_deletion_that_cannot_read_is_tried_again(error: ZooKeeperError, code: ErrorCode) -> None:
    """But for a name that no ACL can have."""
    response = delete_acls.handle(authorizer(error), DeleteAclsRequest(filters=[EXACT]), CONTEXT)
    assert isinstance(response, Coroutine)
    [result] = (await response).filter_results
    assert code == result.error_code
    assert not result.matching_acls


EXACT = DeleteAclsFilter(
    resource_type_filter=ResourceType.TOPIC,
    resource_name_filter="t",
    pattern_type_filter=PatternType.LITERAL,
    operation=AclOperation.ANY,
    permission_type=PermissionType.ANY,
)
