"""Administers a secured cluster: users, ACLs, settings; and waits until each single broker knows of them.

A broker reads a change after a watch in ZooKeeper, so the response to the change does not say that all know
it. Visits that may be refused come from an address of their own.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from kalda import Admin
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.clients.admin.delegation_tokens import DelegationToken
from kalda.clients.admin.users import ScramCredentialDeletion, ScramCredentialUpsertion, ScramMechanism
from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.common.errors import ErrorCode
from tests.chaos.copier_clients import KALDA
from tests.chaos.ordered_load import UNUSED_GROUP
from tests.chaos.secured_clients import GROUPS, PROBE_PREFIX, TOPIC
from tests.chaos.secured_cluster import ADMINISTRATOR, BROKERS, SecuredBrokers
from tests.chaos.secured_visit import STRANGERS_ADDRESS, NoAnswerError, Visit

STEP_SECONDS: Final = 120.0
"""How long a step may take while brokers are killed: their sessions, their starts, the look at files."""

_POLL_SECONDS: Final = 0.2
_MECHANISM: Final = ScramMechanism.SCRAM_SHA_512
ALLOWED: Final[dict[str, tuple[tuple[ResourceType, str, PatternType, tuple[AclOperation, ...]], ...]]] = {
    "producer": ((ResourceType.TOPIC, TOPIC, PatternType.LITERAL, (AclOperation.WRITE,)),),
    "reader": (
        (ResourceType.TOPIC, TOPIC, PatternType.LITERAL, (AclOperation.READ,)),
        # librdkafka's consumer looks for the coordinator of the group that it never joins.
        (ResourceType.GROUP, UNUSED_GROUP, PatternType.LITERAL, (AclOperation.DESCRIBE,)),
    ),
    "member": (
        (ResourceType.TOPIC, TOPIC, PatternType.LITERAL, (AclOperation.READ,)),
        *((ResourceType.GROUP, group, PatternType.LITERAL, (AclOperation.READ,)) for group in GROUPS),
    ),
    "job": ((ResourceType.TOPIC, TOPIC, PatternType.LITERAL, (AclOperation.DESCRIBE,)),),
    "stranger": (),
    "prober": (
        (
            ResourceType.TOPIC,
            PROBE_PREFIX,
            PatternType.PREFIXED,
            (AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE),
        ),
    ),
}
"""What each role is allowed, and nothing else."""


class Operator:
    """Administers the cluster as the super user, and asks single brokers what they know."""

    def __init__(self, cluster: SecuredBrokers) -> None:
        self.cluster: Final = cluster

    def open_admin(self) -> Admin:
        """Connect as the super user."""
        return Admin.from_config(self.cluster.client_settings(KALDA, ADMINISTRATOR))

    def do(self, call: Callable[[Admin], object]) -> None:
        """Call until it succeeds; `call` may be made twice.

        Raises:
            ClientError: it is refused, or did not succeed in time.
        """
        deadline = time.monotonic() + STEP_SECONDS
        while True:
            try:
                with self.open_admin() as admin:
                    call(admin)
                return
            except ClientError as error:
                # A broker that was killed is not known again to each broker at once.
                code = error.code if isinstance(error, BrokerResponseError) else None
                is_coming = code is ErrorCode.BROKER_NOT_AVAILABLE
                if not (error.is_retriable or is_coming) or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)

    def set_user(self, user: str, password: str) -> None:
        """Set the password of a user."""
        change = ScramCredentialUpsertion(user, _MECHANISM, password)
        self.do(lambda admin: admin.alter_user_scram_credentials([change]))

    def delete_user(self, user: str) -> None:
        """Delete the password of a user."""

        def delete(admin: Admin) -> None:
            outcomes = admin.alter_user_scram_credentials(
                [ScramCredentialDeletion(user, _MECHANISM)], outcomes=True
            )
            error = outcomes.errors.get(user)
            # An attempt whose answer was lost has deleted it already.
            if error is not None and error.code != ErrorCode.RESOURCE_NOT_FOUND:
                raise error

        self.do(delete)

    def allow(self, role: str, user: str) -> None:
        """Add the ACLs of a role for a user."""
        bindings = [
            AclBinding(
                ResourcePattern(resource_type, name, pattern),
                AccessControlEntry(f"User:{user}", "*", operation, PermissionType.ALLOW),
            )
            for resource_type, name, pattern, operations in ALLOWED[role]
            for operation in operations
        ]
        self.do(lambda admin: admin.create_acls(bindings))

    def disallow(self, user: str) -> None:
        """Delete all ACLs of a user."""
        matching = AclFilter(principal=f"User:{user}")
        self.do(lambda admin: admin.delete_acls([matching]))

    def set_broker(self, broker_id: int, name: str, value: str) -> None:
        """Change a dynamic setting of a broker."""
        change = {ConfigResource.broker(broker_id): [AlterConfigOp.set(name, value)]}
        self.do(lambda admin: admin.incremental_alter_configs(change))

    def new_token(self) -> DelegationToken:
        """Make a delegation token of the super user."""
        made: list[DelegationToken] = []
        self.do(lambda admin: made.append(admin.create_delegation_token()))
        return made[-1]

    def end_token(self, token: DelegationToken) -> None:
        """Delete a delegation token."""

        def end(admin: Admin) -> None:
            try:
                admin.expire_delegation_token(token.hmac)
            except ClientError as error:
                # An attempt whose answer was lost has deleted it already.
                if error.code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
                    raise

        self.do(end)

    def wait_everywhere(
        self,
        what: str,
        is_so: Callable[[Visit], bool],
        *,
        listener: str = "clients",
        brokers: Iterable[int] = range(BROKERS),
        store: Path | None = None,
    ) -> None:
        """Wait until each broker, asked by itself, shows what is wanted; `store` is a certificate to show.

        Raises:
            TimeoutError: names the broker that does not.
        """
        for broker_id in brokers:
            deadline = time.monotonic() + STEP_SECONDS
            found = "not so"
            while True:
                tls = self.cluster.tls()
                if store is not None:
                    tls.load_cert_chain(store)
                try:
                    with Visit(self.cluster.address(broker_id, listener), tls, STRANGERS_ADDRESS) as visit:
                        if is_so(visit):
                            break
                        found = "not so"
                except NoAnswerError as error:
                    found = str(error)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"broker {broker_id}, {what}: {found} after {STEP_SECONDS} s")
                time.sleep(_POLL_SECONDS)
