"""A ZooKeeper client that leaves a note of each change of metadata, in the transaction of the change.

`RecordingClient` fills the port over another client. A change and its note are made together or not at all,
on every engine, so nothing that a broker of Kalda changes is missing, whatever happens to it afterwards.
A note never makes a change fail: where it cannot be written, the change is made without one.

States of partitions are noted only where a client's request is the reason. Others are many, and the
controller sends them to every broker in any case.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from kalda.cluster import paths
from kalda.cluster.history.author import NO_EPOCH, REQUESTER, Author
from kalda.cluster.history.changes import NOTE_BYTES_MAX, UNKNOWN, Change, Origin, encode_note
from kalda.cluster.history.subjects import (
    NOTES,
    IsSecret,
    Kind,
    recorded_value,
    secret_by_name,
    subject_of,
)
from kalda.cluster.layout import ensure_paths
from kalda.common.overriding import override
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.zookeeper.errors import BadArgumentsError, NoAuthError, NoNodeError, ZooKeeperError
from kalda.zookeeper.port import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    OperationResult,
    SessionKey,
    SessionState,
    SetData,
    Stat,
    StateListener,
    WatchCallback,
    ZooKeeperClient,
)

NOTES_MAX: Final = 10_000
"""Notes that wait to be recorded. More are not written while nobody records them; the next comparison finds
what changed. With some 500 bytes each, 5 MB in the engine."""

_LARGE_NOTES_MAX: Final = 500
"""Where more notes wait, new ones with more than `_SMALL_BYTES` leave the data out: with that many large
notes, what waits would need gigabytes, and etcd would take no writes."""

_SMALL_BYTES: Final = 4_096

_LOOKED_AFTER: Final = 64
"""Own notes between two looks at how many wait."""

_OPERATIONS_OF_NOTE: Final = 4
"""How much of the engine's limit one more creation needs: etcd counts conditions and reads."""

_NAME_BYTES: Final = 10
_TOPICS: Final = f"{paths.TOPICS}/"
_STATE: Final = "/state"

logger: Final = logging.getLogger(__name__)


class RecordingClient(ZooKeeperClient):
    """The session of one broker, with notes."""

    def __init__(
        self, client: ZooKeeperClient, clock: Clock, random: Random, is_secret: IsSecret = secret_by_name
    ) -> None:
        """`is_secret` returns whether the value of a broker's setting must not be recorded."""
        self._client: Final = client
        self._clock: Final = clock
        self._random: Final = random
        self._is_secret: Final = is_secret
        self._has_begun = False
        self._is_full = False
        """Whether too many notes wait."""
        self._note_bytes_max = NOTE_BYTES_MAX
        self._since_look = 0
        self._broker_id: int | None = None
        self.controller_epoch: Callable[[], int] = lambda: NO_EPOCH
        """Returns the epoch of this broker's term as controller."""
        self.on_note: Callable[[], None] = lambda: None
        """Called after a transaction with a note."""

    async def begin_notes(self, broker_id: int) -> None:
        """Create the parent of the notes; from now on changes are noted, as those of this broker.

        What a broker writes before is the layout of a new cluster. It is part of the first state.

        A broker that may not create the parent notes nothing; what it changes is seen by the recorder.

        Raises:
            ZooKeeperError: the parent could not be created for another reason.
        """
        try:
            await ensure_paths(self._client, [NOTES])
        except NoAuthError as error:
            logger.warning(
                "%s cannot be created, so the cluster's history will not name the authors of this broker's "
                "changes: %s. Create it by hand, with the access of /admin",
                NOTES,
                error,
            )
            return
        self._broker_id = broker_id
        self._has_begun = True

    # Writes.

    @override
    async def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False
    ) -> str:
        operation = Create(path, data, ephemeral, sequential)
        if not self._is_recorded(operation):
            return await self._client.create(path, data, ephemeral, sequential)
        (result,) = await self.multi([operation])
        assert isinstance(result, str), f"a creation returns a path, not {result!r}"
        return result

    @override
    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        operation = SetData(path, data, version)
        if not self._is_recorded(operation):
            return await self._client.set(path, data, version)
        (result,) = await self.multi([operation])
        assert isinstance(result, Stat), f"a change returns a stat, not {result!r}"
        return result

    @override
    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        operation = Delete(path, version)
        if self._is_recorded(operation):
            await self.multi([operation])
        else:
            await self._client.delete(path, version)

    @override
    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        note = self._note(operations)
        if note is None or self._is_full:
            results = await self._client.multi(operations)
            if note is not None:
                await self._noted(1)
            return results
        try:
            results = await self._client.multi([*operations, note])
        except ZooKeeperError as error:
            if not _is_of_note(error, len(operations)):
                raise
            await self._note_refused(error)
            return await self._client.multi(operations)
        await self._noted(1)
        return results[:-1]

    @override
    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | ZooKeeperError]:
        notes = [self._note(each) for each in transactions]
        count = sum(note is not None for note in notes)
        if not count:
            return await self._client.multi_many(transactions)
        if self._is_full:
            outcomes = await self._client.multi_many(transactions)
            await self._noted(count)
            return outcomes
        outcomes = await self._client.multi_many(
            [each if note is None else [*each, note] for each, note in zip(transactions, notes, strict=True)]
        )
        refused: list[int] = []
        for index, (operations, note) in enumerate(zip(transactions, notes, strict=True)):
            outcome = outcomes[index]
            if note is None:
                continue
            if not isinstance(outcome, ZooKeeperError):
                outcomes[index] = outcome[:-1]
            elif _is_of_note(outcome, len(operations)):
                await self._note_refused(outcome)
                refused.append(index)
        if refused:
            again = await self._client.multi_many([transactions[index] for index in refused])
            for index, outcome in zip(refused, again, strict=True):
                outcomes[index] = outcome
        await self._noted(count)
        return outcomes

    # Notes.

    def _is_recorded(self, operation: Operation) -> bool:
        if not self._has_begun or isinstance(operation, Check):
            return False
        if isinstance(operation, Create) and (operation.ephemeral or operation.sequential):
            # Registrations are seen by watches, which also report how they end.
            return False
        path = operation.path
        if path.startswith(_TOPICS) and path.find("/", len(_TOPICS)) > 0:
            # Partitions are the most there is of anything, so they are looked at first.
            is_state = path.endswith(_STATE) and not isinstance(operation, Delete)
            return is_state and REQUESTER.get() is not None
        subject = subject_of(path)
        return subject is not None and subject.kind is not Kind.BROKER

    def _note(self, operations: Sequence[Operation]) -> Create | None:
        """Return the creation of the note of a transaction; None if it changes nothing that is recorded."""
        if not self._has_begun:
            return None
        changes = [self._change(each) for each in operations if self._is_recorded(each)]
        deleted = {each.path.rpartition("/")[2] for each in changes if _deletes(each, Kind.TOPIC)}
        # The mark that a topic is to be deleted goes with the topic.
        changes = [
            each
            for each in changes
            if not (_deletes(each, Kind.TOPIC_DELETION) and each.path.rpartition("/")[2] in deleted)
        ]
        if not changes:
            return None
        requester = REQUESTER.get()
        is_fenced = any(
            isinstance(each, Check) and each.path == paths.CONTROLLER_EPOCH for each in operations
        )
        author = Author(
            self._broker_id,
            self.controller_epoch() if is_fenced else NO_EPOCH,
            None if requester is None else requester.author(),
        )
        name = self._random.randbytes(_NAME_BYTES).hex()
        return Create(
            f"{NOTES}/{name}", encode_note(author, self._clock.time_ms(), changes, self._note_bytes_max)
        )

    def _change(self, operation: Operation) -> Change:
        if isinstance(operation, Delete):
            return Change(operation.path, None, 0, Origin.WRITTEN, is_deleted=True)
        assert isinstance(operation, Create | SetData), f"{operation} changes no data"
        version = 0
        if isinstance(operation, SetData):
            version = UNKNOWN if operation.version == ANY_VERSION else operation.version + 1
        value = recorded_value(operation.path, operation.data, self._is_secret)
        return Change(operation.path, value, 0, Origin.WRITTEN, version=version)

    async def _noted(self, count: int) -> None:
        """Look now and then how many notes wait."""
        if not self._is_full:
            self.on_note()
        self._since_look += count
        if self._since_look < _LOOKED_AFTER:
            return
        self._since_look = 0
        try:
            parent = await self._client.exists(NOTES)
        except ZooKeeperError:
            # The change is made; how many notes wait is of no interest to its caller.
            return
        is_long = parent is not None and parent.num_children > _LARGE_NOTES_MAX
        self._note_bytes_max = _SMALL_BYTES if is_long else NOTE_BYTES_MAX
        is_full = parent is not None and parent.num_children > NOTES_MAX
        if is_full and not self._is_full:
            logger.warning(
                "more than %d notes of changed metadata wait to be recorded in the cluster's history; "
                "further changes are not noted until they are. See that __cluster_history has a leader",
                NOTES_MAX,
            )
        self._is_full = is_full

    async def _note_refused(self, error: ZooKeeperError) -> None:
        """Log why a change is made without a note; create the parent of notes again if it was deleted."""
        logger.warning("a change of metadata is not noted for the cluster's history: %s", error)
        if isinstance(error, NoNodeError):
            try:
                await ensure_paths(self._client, [NOTES])
            except ZooKeeperError as failure:
                logger.warning("%s cannot be created: %s", NOTES, failure)

    # Everything else, unchanged.

    @property
    @override
    def session_id(self) -> int:
        return self._client.session_id

    @property
    @override
    def session_key(self) -> SessionKey | None:
        return self._client.session_key

    @property
    @override
    def state(self) -> SessionState:
        return self._client.state

    @property
    @override
    def engine_name(self) -> str:
        return self._client.engine_name

    @property
    @override
    def operations_max(self) -> int:
        return self._client.operations_max - _OPERATIONS_OF_NOTE

    @override
    def add_state_listener(self, listener: StateListener) -> None:
        self._client.add_state_listener(listener)

    @override
    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        return await self._client.get(path, watch)

    @override
    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        return await self._client.exists(path, watch)

    @override
    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        return await self._client.children(path, watch)

    @override
    async def get_many(
        self, paths: Sequence[str], watch: WatchCallback | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        return await self._client.get_many(paths, watch)

    @override
    async def end_session(self, key: SessionKey) -> None:
        await self._client.end_session(key)

    @override
    async def close(self) -> None:
        await self._client.close()


def _deletes(change: Change, kind: Kind) -> bool:
    subject = subject_of(change.path)
    return change.is_deleted and subject is not None and subject.kind is kind


def _is_of_note(error: ZooKeeperError, index: int) -> bool:
    """Return whether a transaction failed because of its note, which is its last operation."""
    return error.operation_index == index or isinstance(error, BadArgumentsError)
