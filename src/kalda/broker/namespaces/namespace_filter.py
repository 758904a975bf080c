"""The filter of a namespace's listener: translates the requests and the responses of its connections."""

from collections.abc import Iterable, Mapping
from typing import Final, cast
from weakref import WeakSet

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.acl_bindings import read_filter
from kalda.broker.security.authorizer import Authorizer
from kalda.common.errors import ApiError
from kalda.common.types import UUID
from kalda.net.connection import Connection
from kalda.net.frame_filters import Close, Pass, ReplaceRequest, ReplaceResponse, Reply, RequestAction
from kalda.net.reply import Chunk
from kalda.protocol.headers import RequestHeader
from kalda.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl
from kalda.protocol.namespaces.namespace import Namespace
from kalda.protocol.namespaces.translator import NamespaceError, RequestNote, Translator


class BrokerNames:
    """The look-ups in this broker that translators need."""

    def __init__(self, cache: MetadataCache, authorizer: Authorizer | None) -> None:
        self._cache: Final = cache
        self._authorizer: Final = authorizer

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the stored name of a topic, or None."""
        return self._cache.topic_name(topic_id)

    def partition_counts(self, prefix: str) -> Mapping[str, int]:
        """Return the number of partitions of each topic whose name begins with a prefix."""
        names = (name for name in self._cache.topic_names if name.startswith(prefix))
        return {name: self._cache.partition_count(name) for name in names}

    def matching_acls(self, wanted: DeleteAclsFilter) -> Iterable[DeleteAclsMatchingAcl] | None:
        """Return the ACLs that a filter matches; None if ACLs are switched off or the filter is wrong."""
        if self._authorizer is None:
            return None
        try:
            found = read_filter(
                wanted.resource_type_filter,
                wanted.resource_name_filter,
                wanted.pattern_type_filter,
                wanted.principal_filter,
                wanted.host_filter,
                wanted.operation,
                wanted.permission_type,
            )
        except ApiError:
            return None
        return [
            DeleteAclsMatchingAcl(
                resource_type=binding.pattern.resource_type,
                resource_name=binding.pattern.name,
                pattern_type=binding.pattern.pattern_type,
                principal=binding.entry.principal,
                host=binding.entry.host,
                operation=binding.entry.operation,
                permission_type=binding.entry.permission,
            )
            for binding in self._authorizer.find(found)
        ]


class NamespaceFilter:
    """The `FrameFilter` of one namespace; it never answers or delays."""

    def __init__(self, space: Namespace, names: BrokerNames) -> None:
        self._translator: Final = Translator(space, names)
        self._with_masked: Final[WeakSet[Connection]] = WeakSet()
        """Connections that sent the id of a topic of another namespace, which their fetch sessions keep."""

    def on_request(
        self, connection: Connection, header: RequestHeader, body: int, frame: memoryview
    ) -> RequestAction:
        """Give the names in a request the prefix."""
        try:
            translated = self._translator.request(header, body, frame)
        except NamespaceError as error:
            return Close(str(error))
        if translated is None:
            return Pass()
        changed, note = translated
        if note.has_masked:
            self._with_masked.add(connection)
        return Pass(note) if changed is frame else ReplaceRequest(_bytes_of(changed), note)

    def on_response(
        self, connection: Connection, header: RequestHeader, reply: Reply, note: object
    ) -> ReplaceResponse | None:
        """Take the prefix from the names in a response."""
        assert isinstance(note, RequestNote), f"{note!r} is no note of a translator"
        chunks = (reply,) if isinstance(reply, bytes) else reply
        has_masked = bool(self._with_masked) and connection in self._with_masked
        translated = self._translator.response(note, chunks, has_masked=has_masked)
        if translated is chunks:
            return None
        # What is not in memory is as the broker gave it.
        return ReplaceResponse(cast("list[Chunk]", translated))


def _bytes_of(frame: memoryview) -> bytearray:
    whole = frame.obj
    assert isinstance(whole, bytearray), "a translated frame is a copy"
    return whole
