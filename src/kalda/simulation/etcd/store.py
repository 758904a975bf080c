"""Keeps the keys of a simulated etcd: revisions, transactions, history, compaction, leases. No I/O, no time.

As etcd does, and as `kalda.etcd` relies on:

- a transaction evaluates all conditions, those of inner transactions too, before it changes anything;
- it has one revision, takes one change of a key, and is refused as a whole;
- a read at a compacted revision is refused, and so is a watch from one;
- a lease that ends deletes its keys in one revision;
- above its quota it takes no request that puts anything, but reads and deletes.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from kalda.etcd.messages import GREATER, Event, KeyValue
from kalda.etcd.protobuf import message_field
from kalda.simulation.etcd import wire
from kalda.simulation.etcd.wire import Compare, DeleteRange, Operation, Put, Range, Txn

OPERATIONS_MAX: Final = 128
"""etcd's default of ``--max-txn-ops``."""

COMPACTED: Final = ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
NO_SPACE: Final = ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")
NO_LEASE: Final = ("NOT_FOUND", "etcdserver: requested lease not found")


class StoreRefusedError(Exception):
    """A request is refused: the name of gRPC's status, and etcd's words."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code: Final = code
        self.details: Final = details


@dataclass(slots=True)
class Lease:
    """A lease and its keys."""

    ttl: int
    ends_at: float
    keys: dict[bytes, None] = field(default_factory=dict)


class EtcdStore:
    """What the disks of a simulated etcd cluster hold; a server that is killed leaves it as it is."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self._is_full = False
        self._has_alarm = False
        self.keys: Final[dict[bytes, KeyValue]] = {}
        self.leases: Final[dict[int, Lease]] = {}
        self._sorted: Final[list[bytes]] = []
        self._history: Final[dict[bytes, list[tuple[int, KeyValue | None]]]] = {}
        """The states of each key, by the revision from which each holds, back to the compacted one."""
        self._log: Final[deque[tuple[int, list[Event]]]] = deque()
        """The changes of each revision since the compacted one."""
        self._next_lease = 7_000

    def fill(self) -> None:
        """Fill the database up to its quota.

        The next request that puts something is refused although it took effect; an alarm then refuses others
        before they do, as etcd does.
        """
        self._is_full = True

    def free(self) -> None:
        """Make space, and disarm the alarm."""
        self._is_full = self._has_alarm = False

    def txn(self, request: Txn) -> bytes:
        """Run a transaction and return the response.

        Raises:
            StoreRefusedError: nothing was changed, unless it is the first that finds no space.
        """
        _require_size(request, OPERATIONS_MAX)
        _require_single_changes(request)
        is_above_quota = self._is_full and _puts_anything(request)
        if is_above_quota and self._has_alarm:
            raise StoreRefusedError(*NO_SPACE)
        outcomes: dict[int, bool] = {}
        self._evaluate(request, outcomes)
        self._require_possible(request, outcomes)
        changes: list[Event] = []
        body = self._run(request, outcomes, changes)
        self._commit(changes)
        if is_above_quota:
            self._has_alarm = True
            raise StoreRefusedError(*NO_SPACE)
        return wire.header(self.revision) + body

    def grant(self, ttl: int, now: float) -> int:
        """Make a lease.

        Raises:
            StoreRefusedError: there is no space.
        """
        if self._is_full:
            self._has_alarm = True
            raise StoreRefusedError(*NO_SPACE)
        self._next_lease += 1
        self.leases[self._next_lease] = Lease(ttl, now + ttl)
        return self._next_lease

    def renew(self, lease: int, now: float) -> int:
        """Renew a lease; return its time to live in seconds, 0 if it has expired."""
        found = self.leases.get(lease)
        if found is None:
            return 0
        found.ends_at = now + found.ttl
        return found.ttl

    def renew_all(self, now: float) -> None:
        """Renew all leases, as a new leader does."""
        for lease in self.leases.values():
            lease.ends_at = now + lease.ttl

    def revoke(self, lease: int) -> None:
        """End a lease and delete its keys.

        Raises:
            StoreRefusedError: there is none.
        """
        found = self.leases.pop(lease, None)
        if found is None:
            raise StoreRefusedError(*NO_LEASE)
        changes: list[Event] = []
        for key in found.keys:
            self._delete(key, changes)
        self._commit(changes)

    def expire(self, now: float) -> None:
        """End the leases whose time is over."""
        for lease, found in list(self.leases.items()):
            if found.ends_at <= now:
                self.revoke(lease)

    def compact(self, revision: int) -> None:
        """Drop the history up to a revision, of which only the state stays."""
        self.compacted = max(self.compacted, min(revision, self.revision))
        while self._log and self._log[0][0] <= self.compacted:
            self._log.popleft()
        for key, states in list(self._history.items()):
            while len(states) > 1 and states[1][0] <= self.compacted:
                states.pop(0)
            if states[0][1] is None and states[0][0] <= self.compacted and len(states) == 1:
                del self._history[key]

    def changes_from(self, revision: int) -> Iterator[tuple[int, list[Event]]]:
        """Iterate over the changes from a revision on, which must not be compacted."""
        return (each for each in self._log if each[0] >= revision)

    # Conditions.

    def _evaluate(self, txn: Txn, outcomes: dict[int, bool]) -> None:
        outcomes[id(txn)] = holds = all(map(self._holds, txn.compares))
        for each in txn.success if holds else txn.failure:
            if isinstance(each, Txn):
                self._evaluate(each, outcomes)

    def _holds(self, compare: Compare) -> bool:
        if compare.end:
            kvs = [self.keys[key] for key in self._between(compare.key, compare.end)]
        else:
            kvs = [self.keys.get(compare.key) or KeyValue()]
        for kv in kvs:
            found = (kv.version, kv.create_revision, kv.mod_revision, 0, kv.lease)[compare.target]
            if not (found > compare.value if compare.result == GREATER else found == compare.value):
                return False
        return True

    def _require_possible(self, txn: Txn, outcomes: dict[int, bool]) -> None:
        for each in txn.success if outcomes[id(txn)] else txn.failure:
            if isinstance(each, Txn):
                self._require_possible(each, outcomes)
            elif isinstance(each, Put):
                if each.lease and each.lease not in self.leases:
                    raise StoreRefusedError(*NO_LEASE)
                if each.keeps_lease and each.key not in self.keys:
                    raise StoreRefusedError("INVALID_ARGUMENT", "etcdserver: key not found")
            elif isinstance(each, Range) and each.revision:
                if each.revision < self.compacted:
                    raise StoreRefusedError(*COMPACTED)
                if each.revision > self.revision:
                    text = "etcdserver: mvcc: required revision is a future revision"
                    raise StoreRefusedError("OUT_OF_RANGE", text)

    # Operations.

    def _run(self, txn: Txn, outcomes: dict[int, bool], changes: list[Event]) -> bytes:
        holds = outcomes[id(txn)]
        responses = [self._do(each, outcomes, changes) for each in (txn.success if holds else txn.failure)]
        return wire.txn_response(holds, responses)

    def _do(self, operation: Operation, outcomes: dict[int, bool], changes: list[Event]) -> bytes:
        if isinstance(operation, Range):
            return self._range(operation)
        if isinstance(operation, Put):
            return self._put(operation, changes)
        if isinstance(operation, DeleteRange):
            return wire.delete_response(self._delete(operation.key, changes))
        # An inner transaction's response has a header without a revision.
        return message_field(4, self._run(operation, outcomes, changes))

    def _range(self, request: Range) -> bytes:
        if request.revision:
            found = self._at(request)
        elif request.end:
            found = [self.keys[key] for key in self._between(request.key, request.end)]
        else:
            kv = self.keys.get(request.key)
            found = [] if kv is None else [kv]
        kvs = [] if request.count_only else found
        if request.keys_only:
            # As etcd 3.7, which reads keys from its index, unless they are sorted by value.
            kvs = [replace(kv, value=b"", lease=kv.lease if request.is_by_value else 0) for kv in kvs]
        return wire.range_response(kvs, len(found))

    def _at(self, request: Range) -> list[KeyValue]:
        end = request.end or request.key + b"\0"
        found = []
        for key in sorted(self._history):
            if request.key <= key < end:
                state = None
                for revision, kv in self._history[key]:
                    if revision <= request.revision:
                        state = kv
                if state is not None:
                    found.append(state)
        return found

    def _put(self, put: Put, changes: list[Event]) -> bytes:
        revision = self.revision + 1
        before = self.keys.get(put.key)
        lease = before.lease if put.keeps_lease and before is not None else put.lease
        if before is not None and before.lease in self.leases:
            self.leases[before.lease].keys.pop(put.key, None)
        if lease:
            self.leases[lease].keys[put.key] = None
        created = revision if before is None else before.create_revision
        version = 1 if before is None else before.version + 1
        kv = KeyValue(put.key, created, revision, version, put.value, lease)
        if before is None:
            insort(self._sorted, put.key)
        self.keys[put.key] = kv
        self._history.setdefault(put.key, []).append((revision, kv))
        changes.append(Event(is_deletion=False, kv=kv))
        return wire.put_response(before if put.previous else None)

    def _delete(self, key: bytes, changes: list[Event]) -> int:
        before = self.keys.pop(key, None)
        if before is None:
            return 0
        self._sorted.pop(bisect_left(self._sorted, key))
        if before.lease in self.leases:
            self.leases[before.lease].keys.pop(key, None)
        revision = self.revision + 1
        self._history[key].append((revision, None))
        changes.append(Event(is_deletion=True, kv=KeyValue(key=key, mod_revision=revision)))
        return 1

    def _commit(self, changes: list[Event]) -> None:
        if changes:
            self.revision += 1
            self._log.append((self.revision, changes))

    def _between(self, key: bytes, end: bytes) -> list[bytes]:
        return self._sorted[bisect_left(self._sorted, key) : bisect_left(self._sorted, end)]


def _require_size(txn: Txn, left: int) -> None:
    """Refuse a transaction with too many conditions or operations; an inner one has what the outer left."""
    size = max(len(txn.compares), len(txn.success), len(txn.failure))
    if size > left:
        raise StoreRefusedError("INVALID_ARGUMENT", "etcdserver: too many operations in txn request")
    for each in (*txn.success, *txn.failure):
        if isinstance(each, Txn):
            _require_size(each, left - size)


def _require_single_changes(txn: Txn) -> None:
    for branch in (txn.success, txn.failure):
        seen: set[bytes] = set()
        for each in branch:
            keys = _changed(each)
            if keys & seen:
                raise StoreRefusedError("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request")
            seen |= keys


def _changed(operation: Operation) -> set[bytes]:
    if isinstance(operation, Put | DeleteRange):
        return {operation.key}
    if isinstance(operation, Txn):
        _require_single_changes(operation)
        return {key for each in (*operation.success, *operation.failure) for key in _changed(each)}
    return set()


def _puts_anything(txn: Txn) -> bool:
    return any(
        isinstance(each, Put) or (isinstance(each, Txn) and _puts_anything(each))
        for each in (*txn.success, *txn.failure)
    )
