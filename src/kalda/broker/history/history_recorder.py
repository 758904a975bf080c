"""Records the cluster's history while this broker leads ``__cluster_history``: `HistoryRecorder`.

One task does all of it. Callbacks of watches, of the metadata and of the runtime only mark what may have
changed. Each round reads that, then the notes, and then compares: a note that was written before the read is
recorded before the comparison, so that a change with a note is never recorded without its author. Notes are
deleted only when their records are committed. A new leader of the topic first compares everything, and so
finds what changed while nobody recorded.
"""

import asyncio
import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from kalda.broker.history.history_shard import HistoryShard
from kalda.broker.history.history_topic import HistoryTopic
from kalda.broker.metadata.metadata_cache import MetadataCache, TopicMetadata
from kalda.cluster import paths
from kalda.cluster.cluster_store import READ_AT_ONCE, ClusterStore
from kalda.cluster.config_changes import ConfigChange, ConfigChanges
from kalda.cluster.history.author import Author
from kalda.cluster.history.changes import (
    Change,
    Origin,
    SnapshotMark,
    decode_note,
    decode_record,
    encode_record,
)
from kalda.cluster.history.record_core import NO_SNAPSHOT, Entry, RecordCore
from kalda.cluster.history.recording_client import NOTES_MAX
from kalda.cluster.history.subjects import (
    NOTES,
    IsSecret,
    JsonValue,
    children_below,
    parents,
    recorded_value,
    singles,
    subject_of,
)
from kalda.cluster.layout import ensure_paths
from kalda.cluster.schema import SchemaError, decode_controller
from kalda.common.backoff import jittered
from kalda.common.errors import ApiError
from kalda.common.pending import Pending
from kalda.common.turns import between_many
from kalda.common.types import ZERO_UUID, TopicPartition, uuid_to_text
from kalda.controller.effects import PartitionLeadership
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_shard import Result, ShardContext
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.zookeeper.errors import NoAuthError, NoNodeError, NotEmptyError, ZooKeeperError
from kalda.zookeeper.port import Delete, SessionState, WatchEvent

SNAPSHOT_INTERVAL_MS: Final = 24 * 60 * 60 * 1000
"""Between two copies of the whole state: as much more than its retention the topic keeps."""

CHECK_INTERVAL_MS: Final = 60 * 60 * 1000
"""How often the recorder looks whether a snapshot is due."""

_BATCH_BYTES: Final = 256 * 1024
"""Records that are appended at once; the topic takes batches of 4 MB, for a znode of the largest size."""

_NOTE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Changes of one note that are appended at once. No note of a broker has as many; of one of another program a
part may be recorded twice."""

_RECORD_BYTES_MAX: Final = 3 * 1024 * 1024
"""A record with more leaves its data out: the topic would not take it, and the recorder would not go on."""

_NOTES_AT_ONCE: Final = 200
_RETRY_SECONDS: Final = 1.0

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)


class HistoryRecorder:
    """The recorder of one broker; `run` is one of its tasks."""

    def __init__(
        self,
        cluster: ClusterStore,
        cache: MetadataCache,
        topic: HistoryTopic,
        clock: Clock,
        random: Random,
        is_secret: IsSecret,
    ) -> None:
        self._cluster: Final = cluster
        self._zookeeper: Final = cluster.zookeeper
        self._cache: Final = cache
        self._topic: Final = topic
        self._clock: Final = clock
        self._random: Final = random
        self._is_secret: Final = is_secret
        self._wake: Final = asyncio.Event()
        self._shard: HistoryShard | None = None
        """Set exactly while this broker leads the topic and has loaded it."""
        self._context: ShardContext | None = None
        self._compares_all = False
        """Whether the next round compares everything."""
        self._reads_live = False
        """Whether registrations or the controller may have changed."""
        self._topics: Final[dict[str, None]] = {}
        """The topics whose metadata may have changed. Bounded by the topics of the cluster."""
        self._paths: Final[dict[str, None]] = {}
        """The znodes that may have changed without a note. Bounded by the entities with settings."""
        self._seen: Final[dict[str, TopicMetadata]] = {}
        """The metadata that was compared last."""
        self._left_notes: Final[set[str]] = set()
        """Notes that cannot be read or deleted, which other programs made."""
        self._config_changes: ConfigChanges | None = None
        cache.on_change(self._on_metadata)

    # For the broker.

    def new_shard(self, partition: int) -> HistoryShard:
        """Make the state of the topic's partition, for the coordinator runtime."""
        return HistoryShard(RecordCore(self._is_secret), self._on_loaded, self._on_unloaded)

    def on_note(self) -> None:
        """Record that this broker has written a note; the topic is created if there is none yet."""
        if self._shard is None:
            self._wake.set()

    def check_snapshot(self) -> None:
        """Have everything compared and copied if the last copy is too old."""
        if self._shard is not None and self._is_snapshot_due(self._shard.core):
            self._compares_all = True
            self._wake.set()

    async def run(self) -> None:
        """Record while this broker leads the topic; ends only by cancellation."""
        self._zookeeper.add_state_listener(self._on_state)
        self._wake.set()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    await self._round()
                except (ZooKeeperError, ApiError) as error:
                    logger.info("the cluster's history is recorded later: %s", error)
                    await self._try_again()
                except Exception:
                    # The history must not end a broker that serves.
                    logger.exception("recording the cluster's history failed, will retry")
                    self._compares_all = True
                    await self._try_again()
        finally:
            await self._unfollow()

    async def _try_again(self) -> None:
        await asyncio.sleep(jittered(_RETRY_SECONDS, self._random))
        self._wake.set()

    # Callbacks; they only mark.

    def _on_loaded(self, shard: HistoryShard, context: ShardContext) -> None:
        self._shard, self._context = shard, context
        self._compares_all = True
        self._wake.set()

    def _on_unloaded(self, shard: HistoryShard) -> None:
        if self._shard is shard:
            self._shard = self._context = None
            self._topics.clear()
            self._paths.clear()
            self._seen.clear()
            self._wake.set()

    def _on_metadata(self, topics: Collection[str]) -> None:
        if self._shard is not None:
            self._topics.update(dict.fromkeys(topics))
            self._wake.set()

    def _on_event(self, event: WatchEvent) -> None:
        if self._shard is not None:
            self._reads_live |= _is_live(event.path) or event.path == paths.BROKER_IDS
            self._wake.set()

    def _on_config(self, change: ConfigChange) -> None:
        if self._shard is not None:
            self._paths[paths.config(change.entity_type, change.entity_name)] = None
            self._wake.set()

    def _on_state(self, state: SessionState) -> None:
        # A new session has no watches, and what happened meanwhile was not reported.
        if state is SessionState.CONNECTED:
            self._compares_all = True
            self._wake.set()

    # One round.

    async def _round(self) -> None:
        shard, context = self._shard, self._context
        if shard is None or context is None:
            await self._unfollow()
            await self._topic.create_if_needed()
            return
        if self._config_changes is None:
            self._config_changes = await self._cluster.watch_config_changes(self._on_config)
        await _Round(self, shard, context).run()

    async def _unfollow(self) -> None:
        changes, self._config_changes = self._config_changes, None
        if changes is not None:
            await changes.close()

    def _is_snapshot_due(self, core: RecordCore) -> bool:
        age = self._clock.time_ms() - core.snapshot_ms
        return core.snapshot_ms == NO_SNAPSHOT or not 0 <= age < SNAPSHOT_INTERVAL_MS


class _Round:
    """One round: it takes the due changes first, and puts them back if it fails."""

    def __init__(self, recorder: HistoryRecorder, shard: HistoryShard, context: ShardContext) -> None:
        self._recorder: Final = recorder
        self._core: Final = shard.core
        self._context: Final = context
        self._zookeeper: Final = recorder._zookeeper
        self._cache: Final = recorder._cache
        self._now_ms: Final = recorder._clock.time_ms()
        self._waiting: Final[list[CoordinatorRecord]] = []
        self._waiting_bytes = 0
        self._recorded: Final[set[str]] = set()
        """The znodes that notes were recorded of since they were read."""
        self._is_first: Final = self._core.snapshot_ms == NO_SNAPSHOT
        """Whether there is no history yet: what is found is its beginning, and no change."""

    async def run(self) -> None:
        recorder = self._recorder
        compares_all, recorder._compares_all = recorder._compares_all, False
        reads_live, recorder._reads_live = recorder._reads_live, False
        topics, named = list(recorder._topics), list(recorder._paths)
        recorder._topics.clear()
        recorder._paths.clear()
        self._core.recorded_since = self._recorded
        try:
            await self._record(compares_all, reads_live, topics, named)
        except BaseException:
            recorder._compares_all |= compares_all
            recorder._reads_live |= reads_live
            recorder._topics.update(dict.fromkeys(topics))
            recorder._paths.update(dict.fromkeys(named))
            raise
        finally:
            self._core.recorded_since = None

    async def _record(
        self, compares_all: bool, reads_live: bool, topics: list[str], named: list[str]
    ) -> None:
        if compares_all:
            topics = list(self._cache.topic_names)
        seen = {name: self._cache.topic(name) for name in topics}
        live = await self._live() if compares_all or reads_live else {}
        read = dict(await self._read(named))
        if compares_all:
            read |= await self._read_all()
        names = await self._note_names()
        await self._record_notes(names)
        # The metadata may name topics that other programs created or changed.
        unknown = [name for name, topic in seen.items() if self._is_other(name, topic)]
        if unknown:
            wanted = [path for name in unknown for path in (paths.topic(name), paths.config("topics", name))]
            read |= await self._read(wanted)
            await self._record_notes(await self._note_names())
        is_first = self._is_first
        origin = Origin.SNAPSHOT if is_first else Origin.FOUND if compares_all else Origin.SEEN
        if is_first:
            self._mark("first", is_end=False)
        await self._compare(read, origin)
        await self._compare(live, Origin.SNAPSHOT if is_first else Origin.SEEN, is_live=True)
        # States are recorded of topics that are.
        await self._commit()
        compared = {
            name: topic
            for name, topic in seen.items()
            if topic is not None and await self._compare_states(topic, origin)
        }
        if is_first:
            self._mark("first", is_end=True)
        elif compares_all and self._recorder._is_snapshot_due(self._core):
            await self._commit()
            await self._copy_all()
        await self._commit()
        for name in seen:
            self._recorder._seen.pop(name, None)
        self._recorder._seen.update(compared)
        if len(names) > NOTES_MAX:
            # Changes without notes may have been made until now.
            self._recorder._compares_all = True
            self._recorder._wake.set()

    # Reading.

    async def _live(self) -> dict[str, Entry | None]:
        """Read the registrations and the controller, with watches; None for a recorded one that is gone."""
        zookeeper, on_event = self._zookeeper, self._recorder._on_event
        ids = await zookeeper.children(paths.BROKER_IDS, on_event)
        wanted = [f"{paths.BROKER_IDS}/{each}" for each in ids]
        found: dict[str, Entry | None] = {
            path: entry
            for path, entry in zip(wanted, await zookeeper.get_many(wanted, on_event), strict=True)
            if entry is not None
        }
        for path in self._core.latest.plain_paths():
            if path.startswith(f"{paths.BROKER_IDS}/"):
                found.setdefault(path, None)
        found[paths.CONTROLLER] = None
        if await zookeeper.exists(paths.CONTROLLER, on_event) is not None:
            controller, epoch = await zookeeper.get_many([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
            found[paths.CONTROLLER] = _with_epoch(controller, epoch)
        return found

    async def _read(self, wanted: Sequence[str]) -> dict[str, Entry | None]:
        found: dict[str, Entry | None] = {}
        for start in range(0, len(wanted), READ_AT_ONCE):
            await between_many(start)
            some = wanted[start : start + READ_AT_ONCE]
            self._recorded.difference_update(some)
            found.update(zip(some, await self._zookeeper.get_many(some), strict=True))
        return found

    async def _read_all(self) -> dict[str, Entry | None]:
        """Read every znode that is or should be recorded, but what `_live` reads and states of partitions."""
        known = [path for path in self._core.latest.plain_paths() if not _is_live(path)]
        wanted = singles()
        waiting = parents()
        while waiting:
            parent = waiting.pop()
            await between_many(len(waiting))
            try:
                children = await self._zookeeper.children(parent)
            except NoNodeError:
                continue
            for child in children:
                path = f"{parent}/{child}"
                if subject_of(path) is not None:
                    wanted.append(path)
                if children_below(path):
                    waiting.append(path)
        return await self._read(list(dict.fromkeys([*wanted, *known])))

    # Notes.

    async def _note_names(self) -> list[str]:
        """List the notes that wait, and watch for the next."""
        try:
            return await self._zookeeper.children(NOTES, self._recorder._on_event)
        except NoNodeError:
            # The parent was deleted by hand.
            try:
                await ensure_paths(self._zookeeper, [NOTES])
            except NoAuthError:
                return []
            return await self._zookeeper.children(NOTES, self._recorder._on_event)

    async def _record_notes(self, names: Sequence[str]) -> None:
        """Record the notes of these names in the order of their transactions, and delete them."""
        left = self._recorder._left_notes
        left.intersection_update(names)
        names = [name for name in names if name not in left]
        found: list[tuple[int, str, bytes]] = []
        recorded: list[str] = []
        for start in range(0, len(names), _NOTES_AT_ONCE):
            await between_many(start)
            some = names[start : start + _NOTES_AT_ONCE]
            entries = await self._read_notes(some)
            for name, entry in zip(some, entries, strict=True):
                if entry is None:
                    continue
                recorded.append(name)
                if not self._core.is_known(name):
                    found.append((entry[1].czxid, name, entry[0]))
        found.sort()
        for index, (zxid, name, data) in enumerate(found):
            await between_many(index)
            changes = decode_note(name, data, zxid)
            if not changes:
                logger.error("the note %s/%s of changed metadata is malformed and left out", NOTES, name)
            if any(each.is_omitted for each in changes):
                changes = [await self._completed(each) for each in changes]
            # They are in one batch, so that all of them are recorded or none.
            for change in changes:
                self._add(change)
                if self._waiting_bytes > _NOTE_BYTES_MAX:
                    await self._commit()
            if self._waiting_bytes > _BATCH_BYTES:
                await self._commit()
        await self._commit()
        for start in range(0, len(recorded), _NOTES_AT_ONCE):
            some = recorded[start : start + _NOTES_AT_ONCE]
            outcomes = await self._zookeeper.multi_many([[Delete(f"{NOTES}/{name}")] for name in some])
            for name, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, NotEmptyError | NoAuthError):
                    self._leave(name, outcome)
                elif isinstance(outcome, ZooKeeperError) and not isinstance(outcome, NoNodeError):
                    raise outcome

    async def _read_notes(self, names: Sequence[str]) -> list[Entry | None]:
        """Read notes; None for one that is gone, and for one that this broker may not read."""
        try:
            return await self._zookeeper.get_many([f"{NOTES}/{name}" for name in names])
        except NoAuthError as error:
            if len(names) == 1:
                self._leave(names[0], error)
                return [None]
        return [each for name in names for each in await self._read_notes([name])]

    def _leave(self, name: str, error: ZooKeeperError) -> None:
        """Leave a note of another program where it is."""
        self._recorder._left_notes.add(name)
        logger.warning("%s/%s is no note of a broker and stays there: %s", NOTES, name, error)

    async def _completed(self, change: Change) -> Change:
        """Read the data that a large note left out; a later change of the znode may be read in its place."""
        if not change.is_omitted:
            return change
        (entry,) = await self._zookeeper.get_many([change.path])
        if entry is None:
            return change
        return Change(
            change.path,
            recorded_value(change.path, entry[0], self._recorder._is_secret),
            change.time_ms,
            change.origin,
            change.author,
            version=entry[1].version,
            zxid=entry[1].mzxid,
            note=change.note,
        )

    # Comparing.

    async def _compare(self, read: dict[str, Entry | None], origin: Origin, *, is_live: bool = False) -> None:
        for index, (path, entry) in enumerate(read.items()):
            await between_many(index)
            if not is_live and path in self._recorded:
                continue
            author = _registered(path, entry) if is_live else None
            change = self._core.znode_change(path, entry, self._now_ms, origin, author)
            if change is not None:
                self._add(change)
                if self._waiting_bytes > _BATCH_BYTES:
                    await self._commit()

    def _is_other(self, name: str, topic: TopicMetadata | None) -> bool:
        """Return whether the record of a topic does not fit its metadata."""
        recorded = self._core.recorded(paths.topic(name))
        if topic is None or recorded is None:
            return (topic is None) != (recorded is None)
        value = recorded.value
        if topic is self._recorder._seen.get(name) or not isinstance(value, dict):
            return False
        partitions = value.get("partitions")
        if not isinstance(partitions, dict):
            return True
        shown = {str(number): list(each.replicas) for number, each in topic.partitions.items()}
        return partitions != shown

    async def _compare_states(self, topic: TopicMetadata, origin: Origin) -> bool:
        """Record the states of a topic's partitions; return False if the topic itself is not recorded."""
        name = topic.name
        recorded = self._core.recorded(paths.topic(name))
        if recorded is None or not _is_same_topic(recorded.value, topic):
            return False
        before = self._recorder._seen.get(name)
        known = before.partitions if before is not None and before.topic_id == topic.topic_id else {}
        for index, (number, each) in enumerate(topic.partitions.items()):
            await between_many(index)
            if known.get(number) is each:
                continue
            change = self._core.state_change(
                TopicPartition(name, number),
                _state(each),
                each.partition_epoch,
                self._now_ms,
                origin,
                self._cache.controller_id,
            )
            if change is not None:
                self._add(change)
                if self._waiting_bytes > _BATCH_BYTES:
                    await self._commit()
        return True

    # Appending.

    def _add(self, entry: Change | SnapshotMark) -> None:
        key, value = encode_record(entry)
        if len(value) > _RECORD_BYTES_MAX and isinstance(entry, Change):
            key, value = encode_record(replace(entry, value=None, is_omitted=True))
        self._waiting.append(CoordinatorRecord(key, value))
        self._waiting_bytes += len(key) + len(value)

    def _mark(self, name: str, *, is_end: bool) -> None:
        self._add(SnapshotMark(name, is_end, self._now_ms))

    async def _copy_all(self) -> None:
        """Write a copy of the whole state, from which a reader can begin."""
        name = self._recorder._random.randbytes(8).hex()
        self._mark(name, is_end=False)
        for index, (path, value) in enumerate(list(self._core.latest.items())):
            await between_many(index)
            found = decode_record(path.encode(), value)
            if isinstance(found, Change):
                self._add(replace(found, origin=Origin.SNAPSHOT, note=""))
            if self._waiting_bytes > _BATCH_BYTES:
                await self._commit()
        self._mark(name, is_end=True)

    async def _commit(self) -> None:
        """Append the waiting records as one batch, and return when it is replicated.

        Raises:
            ApiError: it is not, or this broker does not lead the topic any more.
        """
        if not self._waiting:
            return
        records = tuple(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        await _done(self._context.write(lambda: Result(records, None)))


def _is_live(path: str) -> bool:
    return path == paths.CONTROLLER or path.startswith(f"{paths.BROKER_IDS}/")


def _with_epoch(controller: Entry | None, epoch: Entry | None) -> Entry | None:
    """Return the znode of the controller with its broker and its epoch as the data."""
    if controller is None:
        return None
    try:
        broker, number = decode_controller(controller[0]), None if epoch is None else int(epoch[0])
    except (ValueError, SchemaError):
        return controller
    return json.dumps({"brokerid": broker, "epoch": number}).encode(), controller[1]


def _registered(path: str, entry: Entry | None) -> Author | None:
    """Return the author of a registration, or of an election."""
    if entry is None:
        return None
    if path == paths.CONTROLLER:
        found = recorded_value(path, entry[0])
        broker = found.get("brokerid") if isinstance(found, dict) else None
        return Author(broker if isinstance(broker, int) else None)
    return Author(paths.number(path.rpartition("/")[2]))


def _is_same_topic(value: JsonValue, topic: TopicMetadata) -> bool:
    """Return whether the metadata is of the recorded topic, not of another one that had its name."""
    found = value.get("topic_id") if isinstance(value, dict) else None
    return found is None or topic.topic_id == ZERO_UUID or found == uuid_to_text(topic.topic_id)


def _state(partition: PartitionLeadership) -> dict[str, JsonValue]:
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
        "controller_epoch": partition.controller_epoch,
    }


async def _done(pending: Pending[T]) -> T:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(_: Pending[T]) -> None:
        if not done.done():
            done.set_result(None)

    pending.add_done(on_done)
    await done
    return pending.value
