"""Translates a transaction of the port to one transaction of etcd, and its response back. Sans-IO.

etcd evaluates all conditions first and takes one change of a key. So what the operations need of the znodes
becomes conditions (`compares`), and what they change becomes one put or delete for each key (`success`). If a
condition does not hold, nothing is changed and etcd runs `failure`: reads of all keys that the conditions are
about, in the same moment. From them `error_of` finds which operation failed, as ZooKeeper would have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.etcd import messages
from kalda.etcd.keys import Keys, parent_of
from kalda.etcd.messages import KeyValue, OpResponse, PutResponse, RangeResponse, TxnResponse
from kalda.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZooKeeperError,
)
from kalda.zookeeper.path_validation import check_operation
from kalda.zookeeper.port import ANY_VERSION, Create, Delete, Operation, OperationResult, SetData, Stat

OPERATIONS_OF_REQUEST_MAX: Final = 128
"""etcd's default of ``--max-txn-ops``: conditions, changes, reads of one transaction, each counted."""

REQUEST_BYTES_MAX: Final = 1_572_864 - 65_536
"""etcd's default of ``--max-request-bytes``, less room for what surrounds a transaction."""

_VERSION_MAX: Final = 2**31 - 1
_OPERATION_OVERHEAD_BYTES: Final = 128


def stat_of(kv: KeyValue, children: int, data_length: int) -> Stat:
    """Return a znode's metadata, from its key and the number of its children."""
    return Stat(
        czxid=kv.create_revision,
        mzxid=kv.mod_revision,
        ctime=0,
        mtime=0,
        version=kv.version - 1,
        cversion=0,
        aversion=0,
        ephemeral_owner=kv.lease,
        data_length=data_length,
        num_children=children,
        pzxid=kv.create_revision,
    )


@dataclass(slots=True)
class _Planned:
    """What a znode is behind the operations so far; `version` is None if it is not known."""

    exists: bool
    version: int | None = None
    is_new: bool = False
    is_ephemeral: bool = False
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class _Put:
    data: bytes
    is_ephemeral: bool = False
    replaces: bool = False


class Transaction:
    """One transaction, ready to send.

    Raises:
        BadArgumentsError: a path is not valid, it is too large, or etcd cannot do it in one transaction; the
            error has the `operation_index`.
    """

    def __init__(
        self,
        keys: Keys,
        operations: Sequence[Operation],
        *,
        lease: int,
        counters: Mapping[str, KeyValue],
    ) -> None:
        """`counters` are the known counters of parents of sequential znodes."""
        self._keys = keys
        self._operations: Final[list[Operation]] = []
        """The operations with the numbers of sequential znodes."""
        self._lease = lease
        self._compares: dict[bytes, None] = {}
        self._puts: dict[str, _Put] = {}
        self._deletes: dict[str, None] = {}
        self._planned: dict[str, _Planned] = {}
        self._is_doomed = False
        self.read_paths: Final[dict[str, None]] = {}
        """Znodes that conditions are about."""
        self.read_children: Final[dict[str, None]] = {}
        """Znodes whose children conditions are about."""
        self._counters: Final[dict[str, int]] = {}
        """The next number below each parent of a sequential znode."""
        self._assumed_revisions: Final[dict[str, int]] = {}
        self._known_counters = counters
        self.bytes = 0
        for index, operation in enumerate(operations):
            try:
                self._plan(operation)
            except BadArgumentsError as error:
                error.operation_index = index
                raise
        self._finish()

    @property
    def is_sequential(self) -> bool:
        """Whether it depends on a counter, so that it may have to be sent again."""
        return bool(self._counters)

    @property
    def written(self) -> set[str]:
        """The znodes that it changes."""
        return {*self._puts, *self._deletes}

    @property
    def counted(self) -> set[str]:
        """The parents whose counters it changes."""
        return set(self._counters)

    @property
    def size(self) -> int:
        """How much of etcd's limit of operations it needs."""
        return max(len(self.compares), len(self.success), len(self.failure))

    # Planning.

    def _plan(self, operation: Operation) -> None:
        check_operation(operation)
        data = operation.data if isinstance(operation, Create | SetData) else b""
        self.bytes += 2 * len(operation.path.encode()) + len(data or b"") + _OPERATION_OVERHEAD_BYTES
        if self.bytes > REQUEST_BYTES_MAX:
            raise BadArgumentsError(
                f"{operation.path}: a request of {self.bytes} bytes is above the {REQUEST_BYTES_MAX} that "
                "etcd takes (`--max-request-bytes`); split it",
                operation.path,
            )
        if isinstance(operation, Create):
            self._plan_create(operation)
            return
        if not ANY_VERSION <= operation.version <= _VERSION_MAX:
            raise BadArgumentsError(
                f"{operation.path}: version {operation.version} is not in [-1, {_VERSION_MAX}]",
                operation.path,
            )
        self._operations.append(operation)
        planned = self._require(operation.path, operation.version)
        if isinstance(operation, SetData):
            self._plan_set(operation, planned)
        elif isinstance(operation, Delete):
            self._plan_delete(operation, planned)

    def _plan_create(self, create: Create) -> None:
        parent = parent_of(create.path)
        if create.sequential:
            create = self._numbered(create, parent)
        self._operations.append(create)
        path = create.path
        planned = self._planned.get(path)
        if planned is None:
            self._compare(messages.EQUAL, messages.CREATE, path, 0)
        elif planned.exists:
            self._is_doomed = True
        elif not planned.is_new:
            raise BadArgumentsError(
                f"{path}: etcd cannot delete a key and create it again in one transaction", path
            )
        if path != "/":
            self._require(parent, ANY_VERSION)
            above = self._planned[parent]
            if above.is_new:
                self._is_doomed |= above.is_ephemeral
            else:
                self._compare(messages.EQUAL, messages.LEASE, parent, 0)
        self._planned[path] = _Planned(
            exists=True, version=0, is_new=True, is_ephemeral=create.ephemeral, is_changed=True
        )
        self._puts[path] = _Put(create.data, is_ephemeral=create.ephemeral)

    def _plan_set(self, operation: SetData, planned: _Planned) -> None:
        if planned.is_changed:
            raise BadArgumentsError(
                f"{operation.path}: etcd takes one change of a key in a transaction", operation.path
            )
        planned.is_changed = True
        if planned.version is not None:
            planned.version += 1
        self._puts[operation.path] = _Put(operation.data or b"", replaces=True)

    def _plan_delete(self, operation: Delete, planned: _Planned) -> None:
        path = operation.path
        if path == "/":
            raise BadArgumentsError("/ cannot be deleted", path)
        if any(
            each.exists and each.is_new and parent_of(name) == path for name, each in self._planned.items()
        ):
            self._is_doomed = True
        if planned.is_new:
            self._puts.pop(path, None)
        else:
            self._require_no_children(path)
            self._puts.pop(path, None)
            self._deletes[path] = None
        planned.exists = False

    def _numbered(self, create: Create, parent: str) -> Create:
        number = self._counters.get(parent)
        if number is None:
            known = self._known_counters.get(parent)
            revision = 0 if known is None else known.mod_revision
            number = 0 if known is None else _number(known)
            self._assumed_revisions[parent] = revision
            key = self._keys.counter(parent)
            self._compares[messages.compare(messages.EQUAL, messages.MOD, key, revision)] = None
        self._counters[parent] = number + 1
        return Create(f"{create.path}{number:010d}", create.data, create.ephemeral)

    def _require(self, path: str, version: int) -> _Planned:
        """Require that a znode exists with this version."""
        planned = self._planned.get(path)
        if planned is None:
            planned = self._planned[path] = _Planned(exists=True)
            if version == ANY_VERSION:
                self._compare(messages.GREATER, messages.CREATE, path, 0)
        if not planned.exists:
            self._is_doomed = True
        elif version != ANY_VERSION:
            if planned.version is None and not planned.is_changed:
                self._compare(messages.EQUAL, messages.VERSION, path, version + 1)
                planned.version = version
            elif planned.version is None:
                raise BadArgumentsError(
                    f"{path}: a version is expected behind a change of any version in one transaction", path
                )
            elif planned.version != version:
                self._is_doomed = True
        return planned

    def _require_no_children(self, path: str) -> None:
        """Require that a znode has no children but those that this transaction deletes."""
        start, end = self._keys.children(path)
        self.read_children[path] = None
        gone = sorted(self._keys.znode(each) for each in self._deletes if parent_of(each) == path)
        for key in gone:
            if start < key:
                self._compares[messages.compare(messages.EQUAL, messages.CREATE, start, 0, key)] = None
            start = key + b"\0"
        self._compares[messages.compare(messages.EQUAL, messages.CREATE, start, 0, end)] = None

    def _compare(self, result: int, target: int, path: str, value: int) -> None:
        self.read_paths[path] = None
        self._compares[messages.compare(result, target, self._keys.znode(path), value)] = None

    def _finish(self) -> None:
        keys = self._keys
        self.compares = list(self._compares)
        if self._is_doomed:
            # The reads then show which operation fails. No session has the lease 0.
            self.compares.append(messages.compare(messages.GREATER, messages.CREATE, keys.session(0), 0))
        self.success: list[bytes] = []
        self._stat_at: dict[str, int] = {}
        if not self._is_doomed:
            self._plan_changes()
        self.failure = self._reads(0)
        if self.size > OPERATIONS_OF_REQUEST_MAX - 2:
            raise BadArgumentsError(
                f"{len(self._operations)} operations need {self.size} conditions or changes in one "
                f"transaction of etcd, which takes {OPERATIONS_OF_REQUEST_MAX - 2} (`--max-txn-ops`="
                f"{OPERATIONS_OF_REQUEST_MAX}); split it"
            )

    def _plan_changes(self) -> None:
        keys = self._keys
        for path, put in self._puts.items():
            if put.replaces:
                self._stat_at[path] = len(self.success)
                self.success.append(
                    messages.put_op(keys.znode(path), put.data, previous=True, keeps_lease=True)
                )
                first, end = keys.children(path)
                self.success.append(messages.range_op(first, end, count_only=True))
            else:
                lease = self._lease if put.is_ephemeral else 0
                self.success.append(messages.put_op(keys.znode(path), put.data, lease=lease))
        self.success += [messages.delete_op(keys.znode(path)) for path in self._deletes]
        for parent, number in self._counters.items():
            self.success.append(messages.put_op(keys.counter(parent), b"%d" % number))

    def _reads(self, revision: int) -> list[bytes]:
        """Return the reads of all keys that conditions are about; the revision 0 is the present."""
        keys = self._keys
        return [
            *(
                messages.range_op(keys.znode(path), keys_only=True, revision=revision)
                for path in self.read_paths
            ),
            *(
                messages.range_op(*keys.children(path), count_only=True, revision=revision)
                for path in self.read_children
            ),
            *(messages.range_op(keys.counter(parent), revision=revision) for parent in self._counters),
        ]

    # History.

    def history_reads(self, revision: int) -> list[bytes]:
        """Return the reads that show what it did in a request that took effect at a revision."""
        children = (self._keys.children(path) for path in self._stat_at)
        return [
            *self._reads(revision - 1),
            *(messages.range_op(*each, count_only=True, revision=revision) for each in children),
        ]

    def response_of(self, history: Sequence[OpResponse]) -> TxnResponse:
        """Return the response that etcd gave, from the responses of `history_reads`.

        Numbers of children are those behind the whole request.
        """
        size = len(self.failure)
        before, counts = history[:size], list(history[size:])
        if self.is_outdated(self.counters_of(before)) or self._error_in(before) is not None:
            return TxnResponse(succeeded=False, responses=list(before))
        nodes = self._nodes(before)
        responses: list[OpResponse] = []
        for path, put in self._puts.items():
            responses.append(PutResponse(nodes.get(path) if put.replaces else None))
            if put.replaces:
                responses.append(counts.pop(0))
        return TxnResponse(succeeded=True, responses=responses)

    # Responses.

    def results(self, responses: Sequence[OpResponse], revision: int) -> list[OperationResult]:
        """Return the results in order, from the responses of `success`."""
        results: list[OperationResult] = []
        for operation in self._operations:
            if isinstance(operation, Create):
                results.append(operation.path)
            elif isinstance(operation, SetData) and operation.path in self._stat_at:
                index = self._stat_at[operation.path]
                put, children = responses[index], responses[index + 1]
                assert isinstance(put, PutResponse), f"{put!r} is no response of a put"
                assert isinstance(children, RangeResponse), f"{children!r} is no response of a read"
                before = put.previous or KeyValue()
                after = KeyValue(b"", before.create_revision, revision, before.version + 1, b"", before.lease)
                results.append(stat_of(after, children.count, len(operation.data or b"")))
            else:
                results.append(None)
        return results

    def next_counters(self, revision: int) -> dict[str, KeyValue]:
        """Return the counters behind this transaction, which took effect at `revision`."""
        return {
            parent: KeyValue(mod_revision=revision, value=b"%d" % number)
            for parent, number in self._counters.items()
        }

    def counters_of(self, responses: Sequence[OpResponse]) -> dict[str, KeyValue]:
        """Return the counters as the responses of `failure` show them; a missing one has no revision."""
        found = responses[len(self.read_paths) + len(self.read_children) :]
        return {
            parent: _only(response) or KeyValue()
            for parent, response in zip(self._counters, found, strict=True)
        }

    def is_outdated(self, counters: Mapping[str, KeyValue]) -> bool:
        """Return whether it was made with other counters than these."""
        return any(
            counter.mod_revision != self._assumed_revisions[parent] for parent, counter in counters.items()
        )

    def error_of(self, responses: Sequence[OpResponse]) -> ZooKeeperError:
        """Return the error, from the responses of `failure`."""
        error = self._error_in(responses)
        return error or ZooKeeperError("etcd did not do a transaction whose conditions hold")

    def _error_in(self, responses: Sequence[OpResponse]) -> ZooKeeperError | None:
        nodes = self._nodes(responses)
        counts: dict[str, int] = {}
        for path, response in zip(self.read_children, responses[len(self.read_paths) :], strict=False):
            assert isinstance(response, RangeResponse), f"{response!r} is no response of a read"
            counts[path] = response.count
        for index, operation in enumerate(self._operations):
            error = _failure(operation, nodes, counts)
            if error is not None:
                error.operation_index = index
                return error
        return None

    def _nodes(self, responses: Sequence[OpResponse]) -> dict[str, KeyValue | None]:
        return {path: _only(response) for path, response in zip(self.read_paths, responses, strict=False)}


def _failure(
    operation: Operation, nodes: dict[str, KeyValue | None], counts: dict[str, int]
) -> ZooKeeperError | None:
    """Perform an operation on what was read; return why it fails, or None."""
    path = operation.path
    node = nodes.get(path)
    parent = parent_of(path)
    if isinstance(operation, Create):
        if node is not None:
            return NodeExistsError(f"{path} exists already", path)
        above = nodes.get(parent)
        if above is None:
            return NoNodeError(f"{parent} does not exist", path)
        if above.lease:
            return NoChildrenForEphemeralsError(f"{parent} is ephemeral and takes no children", path)
        nodes[path] = KeyValue(version=1, lease=int(operation.ephemeral))
        counts[parent] = counts.get(parent, 0) + 1
        return None
    if node is None:
        return NoNodeError(f"{path} does not exist", path)
    if operation.version not in (ANY_VERSION, node.version - 1):
        text = f"{path} has the version {node.version - 1}, not {operation.version}"
        return BadVersionError(text, path)
    if isinstance(operation, SetData):
        nodes[path] = KeyValue(version=node.version + 1, lease=node.lease)
    elif isinstance(operation, Delete):
        if counts.get(path, 0) > 0:
            return NotEmptyError(f"{path} has children", path)
        nodes[path] = None
        counts[parent] = counts.get(parent, 0) - 1
    return None


def splits(operations: Sequence[Operation]) -> bool:
    """Return whether it deletes a znode and creates it again, and does nothing else.

    etcd takes this as two transactions. A crash between them leaves the znode deleted.
    """
    return (
        len(operations) == 2
        and isinstance(operations[0], Delete)
        and isinstance(operations[1], Create)
        and operations[0].path == operations[1].path
    )


def _only(response: OpResponse) -> KeyValue | None:
    assert isinstance(response, RangeResponse), f"{response!r} is no response of a read"
    return response.kvs[0] if response.kvs else None


def _number(counter: KeyValue) -> int:
    try:
        return int(counter.value)
    except ValueError:
        return 0
