"""Decides whether a caller may use a subject. On a cluster without logins everybody may.

A subject belongs to the topic that its name begins with: ``orders-key`` and ``orders-value`` to ``orders``,
in any context, and every other subject to the topic of the same name. What a caller may do with the topic, by
the ACLs of the cluster, it may do with the subject; the brokers are asked as the caller, so this holds on any
cluster, and for super users and defaults as well. A caller that may describe or alter the cluster may read or
change every subject; so those subjects are managed whose names are of no topic.

| of a subject | of its topic | or of the cluster |
|---|---|---|
| read, look up, check | Describe | Describe |
| register | Write | Alter |
| delete | Delete | Alter |
| configuration, mode | Alter | Alter |
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import Final

from kalda.clients.admin.acls import AclOperation
from kalda.clients.errors import BrokerResponseError, UnknownTopicOrPartitionError
from kalda.http.callers import Caller, Callers
from kalda.http.errors import HttpError
from kalda.http.registry.subjects import Subject

KEPT_SECONDS: Final = 5.0
"""How long an answer of the brokers counts; a changed ACL takes effect after it."""

KEPT_MAX: Final = 1_000
"""Callers whose rights are kept."""

TOPICS_KEPT_MAX: Final = 10_000
"""Topics of one caller whose operations are kept."""

Operations = frozenset[AclOperation]
_NONE: Final[Operations] = frozenset()


class Operation(Enum):
    """The operation of a request, which decides the permission it needs."""

    NONE = "nothing that is protected"
    READ = "read"
    READ_ID = "read by id"
    """The id alone says nothing of a subject: a caller that has a record may see its schema."""
    READ_ALL = "list"
    """A list has only what the caller may read."""
    WRITE = "register under"
    DELETE = "delete"
    ALTER = "alter the settings of"


_OF_TOPIC: Final = {
    Operation.READ: AclOperation.DESCRIBE,
    Operation.WRITE: AclOperation.WRITE,
    Operation.DELETE: AclOperation.DELETE,
    Operation.ALTER: AclOperation.ALTER,
}
_READS: Final = (Operation.NONE, Operation.READ, Operation.READ_ID, Operation.READ_ALL)


def topic_of(subject: str) -> str:
    """Return the topic whose ACLs hold for a subject.

    >>> topic_of(":.staging:orders-value")
    'orders'
    """
    name = Subject.parse(subject).name
    for suffix in ("-key", "-value"):
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


@dataclass(slots=True)
class _Rights:
    """The permissions of a caller according to the brokers, valid until `until`."""

    until: float
    cluster: Operations
    visible: frozenset[str] | None = None
    """The topics that the caller may describe."""
    topics: dict[str, Operations] = field(default_factory=dict)


class Authorizer:
    """The rules of one process."""

    def __init__(self, callers: Callers) -> None:
        self._callers: Final = callers
        self._rights: Final[OrderedDict[bytes, _Rights]] = OrderedDict()

    @property
    def is_open(self) -> bool:
        """Whether every caller may read everything, so that a kept response needs no check."""
        return not self._callers.needs_login

    async def check(self, caller: Caller, operation: Operation, subject: str | None) -> None:
        """Check a request for a subject; None stands for the whole registry.

        Raises:
            HttpError: the caller may not do it (403).
            ClientError: the brokers cannot be asked.
        """
        if self.is_open or operation in (Operation.NONE, Operation.READ_ID, Operation.READ_ALL):
            return
        if caller.is_read_only:
            if operation in _READS:
                return
            raise HttpError(403, "a caller without credentials may only read", 40301)
        if subject is None and operation is Operation.READ:
            return  # the global configuration and mode are no secret
        rights = await self._rights_of(caller)
        on_cluster = AclOperation.DESCRIBE if operation is Operation.READ else AclOperation.ALTER
        if on_cluster in rights.cluster:
            return
        if subject is not None:
            allowed = await self._of_topic(caller, rights, topic_of(subject))
            if _OF_TOPIC[operation] in allowed:
                return
        what = "the registry" if subject is None else f"subject {subject}"
        needed = f"{on_cluster.title} on the cluster"
        if subject is not None:
            needed = f"{_OF_TOPIC[operation].title} on topic {topic_of(subject)}, or {needed}"
        raise HttpError(
            403, f"{caller.principal} may not {operation.value} {what}: that needs {needed}", 40301
        )

    async def readable(self, caller: Caller, subjects: Iterable[str]) -> list[str]:
        """Return the subjects that a caller may read.

        Raises:
            ClientError: the brokers cannot be asked.
        """
        if self.is_open or caller.is_read_only:
            return list(subjects)
        rights = await self._rights_of(caller)
        if AclOperation.DESCRIBE in rights.cluster:
            return list(subjects)
        if rights.visible is None:
            listed = await (await caller.admin()).list_topics(include_internal=True)
            rights.visible = frozenset(listed)
        visible = rights.visible
        return [each for each in subjects if topic_of(each) in visible]

    async def _rights_of(self, caller: Caller) -> _Rights:
        now = monotonic()
        rights = self._rights.get(caller.key)
        if rights is not None and now < rights.until:
            return rights
        described = await (await caller.admin()).describe_cluster(include_authorized_operations=True)
        rights = _Rights(now + KEPT_SECONDS, described.authorized_operations or _NONE)
        self._rights[caller.key] = rights
        self._rights.move_to_end(caller.key)
        if len(self._rights) > KEPT_MAX:
            self._rights.popitem(last=False)
        return rights

    async def _of_topic(self, caller: Caller, rights: _Rights, topic: str) -> Operations:
        """Return what a caller may do with a topic; nothing with one that does not exist."""
        found = rights.topics.get(topic)
        if found is None:
            admin = await caller.admin()
            try:
                described = await admin.describe_topics([topic], include_authorized_operations=True)
                found = described[topic].authorized_operations or _NONE
            except BrokerResponseError as error:
                if error.is_retriable and not isinstance(error, UnknownTopicOrPartitionError):
                    raise
                found = _NONE
            if len(rights.topics) < TOPICS_KEPT_MAX:
                rights.topics[topic] = found
        return found
