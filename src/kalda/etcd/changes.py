"""Reports the changes of a cluster's znodes to watches, from the stream of a connection.

Results of requests wait here until the changes up to their revision were reported. If etcd has compacted
changes that are still to be reported, the watched znodes are read instead.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from kalda.etcd import messages
from kalda.etcd.fence import Fence
from kalda.etcd.keys import Keys, node_of
from kalda.etcd.link import CompactedError, EtcdLink, LeaseGoneError, LinkLostError, RefusedError
from kalda.etcd.messages import RangeResponse, WatchResponse
from kalda.etcd.watches import EtcdWatches, Triggered

_BARRIER_SECONDS: Final = 0.02
"""How long results wait for changes up to their revision, before a change of our own is made to follow them:
other programs write to etcd, too, and their revisions are not reported here."""
_EVENTS_PER_TURN: Final = 500

logger: Final = logging.getLogger(__name__)


class Changes:
    """The watches of a session, and how far changes have been reported to them."""

    def __init__(self, keys: Keys, fence: Fence, request_seconds: float) -> None:
        self.watches: Final = EtcdWatches(keys)
        self.is_compacted = False
        """Whether etcd has said that changes behind the last reported one are gone."""
        self._keys: Final = keys
        self._fence: Final = fence
        self._request_seconds: Final = request_seconds
        self._reported: Final = asyncio.Condition()

    def start(self, revision: int) -> None:
        """Begin with a new session, which has no watches and begins behind a revision."""
        self.watches.clear()
        self.watches.seen = revision

    async def stream(self, connection: EtcdLink) -> AsyncGenerator[WatchResponse]:
        """Begin the stream of changes behind the last reported one; read znodes again if it is compacted."""
        if self.is_compacted or not await self._has_changes_since(connection, self.watches.seen):
            await self._catch_up(connection, "changes were compacted")
            self.is_compacted = False
        stream = connection.watch(self._keys.first, self._keys.end, self.watches.seen + 1)
        await anext(stream)
        return stream

    async def report(self, stream: AsyncGenerator[WatchResponse]) -> None:
        """Report changes until the stream ends.

        Raises:
            LeaseGoneError: the session's key was deleted.
            LinkLostError, CompactedError: the stream has ended.
        """
        session = self._fence.key
        async for response in stream:
            for start in range(0, len(response.events), _EVENTS_PER_TURN):
                if start:
                    await asyncio.sleep(0)
                events = response.events[start : start + _EVENTS_PER_TURN]
                for change in self.watches.changes(events):
                    triggered = self.watches.report(change)
                    if triggered is not None:
                        self._fire(triggered)
                if any(event.is_deletion and event.kv.key == session for event in events):
                    raise LeaseGoneError(f"session {self._fence.lease:#x} is over")
            if response.events:
                async with self._reported:
                    self.watches.seen = max(self.watches.seen, response.events[-1].kv.mod_revision)
                    self._reported.notify_all()
        raise LinkLostError("the stream of changes ended")

    async def wait_reported(self, connection: EtcdLink, revision: int) -> None:
        """Wait until all changes up to a revision were reported, if anybody watches.

        Raises:
            LinkLostError: they do not come.
        """
        if not len(self.watches) or await self._is_reported(revision, _BARRIER_SECONDS):
            return
        fence = self._fence
        try:
            response = await connection.txn(messages.txn((fence.holds,), (fence.put(),), (fence.read(),)))
        except RefusedError:
            # Out of space: the stream may not come as far while others' changes are the newest.
            await self._catch_up(connection, "etcd takes no writes")
            return
        fence.version = fence.version + 1 if response.succeeded else fence.found(response).version
        if not await self._is_reported(revision, self._request_seconds):
            raise LinkLostError(f"{connection.endpoint} does not report changes")

    async def _is_reported(self, revision: int, seconds: float) -> bool:
        """Return whether all changes up to a revision are reported, in some time at most."""
        if self.watches.seen >= revision:
            return True
        async with self._reported:
            try:
                await asyncio.wait_for(
                    self._reported.wait_for(lambda: self.watches.seen >= revision), seconds
                )
            except TimeoutError:
                return False
        return True

    async def _has_changes_since(self, connection: EtcdLink, revision: int) -> bool:
        try:
            await connection.txn(
                messages.txn((), (messages.range_op(self._keys.znode("/"), revision=revision),))
            )
        except CompactedError:
            return False
        return True

    async def _catch_up(self, connection: EtcdLink, why: str) -> None:
        """Read all watched znodes, because changes since the last reported one do not come."""
        response = await connection.txn(messages.txn((), (messages.range_op(self._keys.znode("/")),)))
        revision = response.revision
        paths = [
            *((path, False) for path in self.watches.data_paths),
            *((path, True) for path in self.watches.child_paths),
        ]
        for path, is_children in paths:
            first, end = self._keys.children(path)
            operations = [
                messages.range_op(self._keys.znode(path), keys_only=True, revision=revision),
                messages.range_op(first, end, keys_only=True, count_only=not is_children, revision=revision),
            ]
            responses = (await connection.txn(messages.txn((), operations))).responses
            kv, _ = node_of(responses)
            children = responses[1]
            assert isinstance(children, RangeResponse), f"{children!r} is no response of a read"
            found = (
                self.watches.missed_children(path, kv, children.kvs)
                if is_children
                else self.watches.missed_data(path, kv)
            )
            if found is not None:
                # At once: the watch is gone, and the next read may fail.
                self._fire(found)
        self.watches.caught_up(revision)
        logger.info("read %d watched znodes at revision %d: %s", len(paths), revision, why)

    def fire_all(self, triggered: Sequence[Triggered]) -> None:
        """Call callbacks."""
        for each in triggered:
            self._fire(each)

    def _fire(self, triggered: Triggered) -> None:
        event, callbacks = triggered
        for callback in callbacks:
            try:
                callback(event)
            except Exception:
                # A callback must not raise, but its fault must not affect other watches.
                logger.exception("a watch callback failed on %s of %s", event.type.name, event.path)
