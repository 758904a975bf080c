"""Defines a request of JetStream's API, and checks what its client may do."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kalda.broker.nats.nats_access import NatsAccess
from kalda.nats.jetstream.api_errors import not_permitted
from kalda.nats.operations import Publish
from kalda.security.acl.model import AclOperation


class TryAgainError(Exception):
    """The stream of a request has no leader that answers now, but may have one soon."""


class ApiRequest(NamedTuple):
    """One request of the API."""

    kind: str
    names: Sequence[str]
    """The tokens of the subject after the kind."""
    sent: Publish
    access: NatsAccess | None
    is_carried: bool = False
    """Whether it came from another broker, and goes to no other one."""

    @property
    def body(self) -> bytes:
        """The payload."""
        return self.sent.payload

    @property
    def reply(self) -> bytes:
        """The subject that gets the answer."""
        return self.sent.reply

    def require(self, operation: AclOperation, topic: str) -> None:
        """Check that the client may do something with the topic of a stream.

        Raises:
            JetStreamError: it may not.
        """
        if not self.may(operation, topic):
            raise not_permitted()

    def may(self, operation: AclOperation, topic: str) -> bool:
        """Return whether the client may do something with the topic of a stream."""
        return self.access is None or self.access.may(operation, topic)

    def require_to_send(self, subject: str) -> None:
        """Check that the broker may send to a subject of the client's choice.

        Raises:
            JetStreamError: it may not.
        """
        if self.access is not None and not self.access.may_be_sent_to(subject.encode()):
            raise not_permitted()

    def require_to_read_all(self, pattern: str) -> None:
        """Check that the client may read each subject of a pattern; an ACL for all of them names a prefix.

        Raises:
            JetStreamError: it may not.
        """
        if self.access is not None and not self.access.may_read_all(pattern.encode()):
            raise not_permitted()

    def require_not_denied(self, patterns: Iterable[str]) -> None:
        """Check that no ACL denies the client to read a subject of some patterns.

        Raises:
            JetStreamError: one does.
        """
        if self.access is not None and any(self.access.is_denied_any(each.encode()) for each in patterns):
            raise not_permitted()
