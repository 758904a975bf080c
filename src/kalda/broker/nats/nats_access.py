"""Decides by the cluster's ACLs what a NATS client may do: a subject counts as the topic of that name.

A subject that `kalda.nats.subjects` maps to a topic counts as that topic.

WRITE lets a client publish to a subject, READ get its messages. A subscription with wildcards is always
accepted, and the client gets those messages whose subject it may read.
"""

from collections.abc import Collection
from typing import Any, Final

from kalda.broker.security.authorizer import Authorizer, Client
from kalda.nats.subject_rules import SubjectRules
from kalda.nats.subjects import overlaps, overlaps_prefix
from kalda.security.acl.model import AclOperation, PatternType, ResourcePattern, ResourceType
from kalda.security.principal import ANONYMOUS, KafkaPrincipal

INBOX_PREFIX: Final = b"_INBOX"
"""Of the subjects that clients make for their answers; `_INBOX_name` is a common one of their own."""

JETSTREAM_PREFIXES: Final = (b"$JS.API.", b"$JS.ACK.", b"$JS.FC.")

REMOTE_CLIENTS_MAX: Final = 1_000
"""Clients of other brokers whose rights are remembered; beyond, all are forgotten and looked up again."""


class NatsAccess:
    """The permissions of one client: an `Access`."""

    def __init__(
        self,
        authorizer: Authorizer,
        client: Client,
        rules: SubjectRules | None,
        *,
        has_jetstream: bool = False,
    ) -> None:
        self._rules: Final = rules
        self._has_jetstream: Final = has_jetstream
        self._authorizer: Final = authorizer
        self._client: Final = client

    @property
    def principal(self) -> str:
        """The principal of the client, as `RemoteClients` reads it."""
        return str(self._client.principal)

    @property
    def host(self) -> str:
        """The address of the client."""
        return self._client.peer_address

    def may(self, operation: AclOperation, topic: str) -> bool:
        """Return whether it may do something with a topic."""
        return self._authorizer.allows(self._client, operation, ResourceType.TOPIC, topic, is_noted=True)

    def may_publish(self, subject: bytes) -> bool:
        """Return whether it may publish to a subject."""
        if self._has_jetstream and subject.startswith(JETSTREAM_PREFIXES):
            # What JetStream does with it needs rights on the topic of the stream.
            return True
        return self._allows(AclOperation.WRITE, subject, is_noted=True)

    def may_subscribe(self, subject: bytes) -> bool:
        """Return whether it may subscribe to a subject without wildcards."""
        return self._allows(AclOperation.READ, subject, is_noted=True)

    def may_receive(self, subject: bytes) -> bool:
        """Return whether it may get a message with this subject."""
        return self._allows(AclOperation.READ, subject, is_noted=False)

    def may_be_sent_to(self, subject: bytes) -> bool:
        """Return whether the broker may send to a subject of the client's choice: a reply, a delivery.

        Who else is subscribed to it gets that as well, so it needs the right to publish there. Inboxes are
        for answers, and clients only need the right to read theirs.
        """
        if subject.startswith(INBOX_PREFIX):
            return self.may_subscribe(subject)
        return self._allows(AclOperation.WRITE, subject, is_noted=True)

    def may_read_all(self, pattern: bytes) -> bool:
        """Return whether it may read each subject that a pattern includes."""
        return self.may_subscribe(pattern) and not self._excludes_any(pattern, by_denial=False)

    def is_denied_any(self, pattern: bytes) -> bool:
        """Return whether an ACL denies it to read a subject that a pattern includes."""
        return self._excludes_any(pattern, by_denial=True)

    def _excludes_any(self, pattern: bytes, *, by_denial: bool) -> bool:
        def is_within(acl: ResourcePattern) -> bool:
            name = acl.name.encode()
            if acl.pattern_type is PatternType.PREFIXED:
                return overlaps_prefix(pattern, name)
            return overlaps(pattern, name)

        text = pattern.decode(errors="backslashreplace")
        return self._authorizer.excludes_any(
            self._client, AclOperation.READ, text, is_within, by_denial=by_denial
        )

    def _allows(self, operation: AclOperation, subject: bytes, *, is_noted: bool) -> bool:
        found = None if self._rules is None else self._rules.to_topic(subject)
        # A name that is no UTF-8 is none that an ACL could name exactly.
        name = subject.decode(errors="backslashreplace") if found is None else found.topic
        return self._authorizer.allows(self._client, operation, ResourceType.TOPIC, name, is_noted=is_noted)


class RemoteClient:
    """A client of another broker, which has authenticated it."""

    def __init__(self, principal: KafkaPrincipal, host: str) -> None:
        self.principal = principal
        self.peer_address: Final = host
        self.decisions: Any = None
        self.writable_names: Collection[bytes] = ()


class RemoteClients:
    """The permissions of clients of other brokers."""

    def __init__(self, authorizer: Authorizer | None, rules: SubjectRules | None) -> None:
        self._authorizer: Final = authorizer
        self._rules: Final = rules
        self._known: Final[dict[tuple[str, str], NatsAccess]] = {}

    def access(self, principal: str, host: str) -> NatsAccess | None:
        """Return the permissions of a client; None if every client may do everything.

        A broker without an authorizer does not name its clients: they count as not authenticated.
        """
        if self._authorizer is None:
            return None
        found = self._known.get((principal, host))
        if found is None:
            if len(self._known) >= REMOTE_CLIENTS_MAX:
                self._known.clear()
            kind, _, name = principal.partition(":")
            client = RemoteClient(KafkaPrincipal(kind, name) if name else ANONYMOUS, host)
            found = self._known[principal, host] = NatsAccess(
                self._authorizer, client, self._rules, has_jetstream=True
            )
        return found
