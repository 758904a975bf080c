"""The coordination server against a model of ZooKeeper's rules, pipelined at random, crashed at random."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    StorageError,
    ZooKeeperError,
)
from kalda.zookeeper.port import Check, Create, Delete, Operation, SetData, Stat
from kalda.zookeeper.server.acl import Identity, Permission
from kalda.zookeeper.server.processor_requests import (
    CloseSession,
    Created,
    CreateMode,
    CreateNode,
    DeleteContainer,
    Multi,
    NodeOperation,
    SetAcl,
)
from kalda.zookeeper.server.txns import OPEN_ACL
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import Crash, MemoryFileSystem

PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/p")
DATA = (b"", b"one", b"two" * 50)

paths = st.sampled_from(PATHS)
versions = st.sampled_from((-1, -1, 0, 1, 2))
acls = st.sampled_from(
    (
        OPEN_ACL,
        (Acl(int(Permission.READ | Permission.CREATE), "world", "anyone"), Acl(31, "ip", "10.0.0.1")),
        (Acl(int(Permission.WRITE | Permission.DELETE), "world", "anyone"), Acl(31, "ip", "10.0.0.1")),
    )
)
ports_operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, paths, st.sampled_from(DATA), st.booleans(), st.booleans()),
    st.builds(SetData, paths, st.sampled_from(DATA), versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, st.sampled_from((0, 1, 2))),
)
operations: st.SearchStrategy[NodeOperation] = st.one_of(
    ports_operations,
    st.builds(
        lambda path, acl, mode: CreateNode(path, b"one", acl, mode, 1000 if mode.has_ttl else -1),
        paths,
        acls,
        st.sampled_from(CreateMode),
    ),
    st.builds(SetAcl, paths, acls, versions),
    st.builds(DeleteContainer, paths),
)
SESSIONS = 2
"""The first asks in the name of this process, to which nothing is forbidden; the second as a client."""
IDENTITIES = (None, (Identity("ip", "10.0.0.2"),))
steps = st.one_of(
    st.tuples(st.integers(0, SESSIONS - 1), operations),
    st.tuples(st.integers(0, SESSIONS - 1), st.lists(operations, min_size=1, max_size=4).map(Multi)),
    st.tuples(st.integers(0, SESSIONS - 1), st.just(CloseSession())),
)
Request: TypeAlias = NodeOperation | Multi | CloseSession
Script: TypeAlias = list[list[tuple[int, Request]]]
Contents: TypeAlias = dict[str, tuple[bytes, int, tuple[Acl, ...], int]]
NEEDED = {SetData: Permission.WRITE, SetAcl: Permission.ADMIN, Check: Permission.READ}
groups = st.lists(st.lists(steps, min_size=1, max_size=4), max_size=12)


@dataclass
class ModelNode:
    data: bytes
    version: int = 0
    created: int = 0
    owner: int = 0
    acl: tuple[Acl, ...] = OPEN_ACL
    aversion: int = 0
    is_reaped: bool = False
    """Whether it is a container or has a time to live."""


@dataclass
class Model:
    """The rules, one operation at a time, on a plain dictionary."""

    nodes: dict[str, ModelNode] = field(default_factory=lambda: {"": ModelNode(b"", created=0)})
    live: set[int] = field(default_factory=set)

    def copy(self) -> "Model":
        return Model({path: replace(node) for path, node in self.nodes.items()}, set(self.live))

    def do(self, session: int, request: Request, is_client: bool) -> list[object]:
        """Return what each operation gives, or raise and leave the model half changed."""
        if isinstance(request, DeleteContainer):
            return [self.do_one(session, request, is_client)]
        if session not in self.live:
            raise SessionExpiredError("")
        if isinstance(request, CloseSession):
            self.live.discard(session)
            self.nodes = {p: n for p, n in self.nodes.items() if n.owner != session}
            return []
        if not isinstance(request, Multi):
            return [self.do_one(session, request, is_client)]
        results = []
        for part in request.operations:
            if isinstance(part, SetAcl | DeleteContainer):
                raise BadArgumentsError("")
            results.append(self.do_one(session, part, is_client))
        return results

    def do_one(self, session: int, operation: NodeOperation, is_client: bool) -> object:
        if isinstance(operation, Create | CreateNode):
            return self.create(session, operation, is_client)
        node = self.nodes.get(operation.path)
        if isinstance(operation, Delete):
            parent = self.nodes.get(operation.path.rpartition("/")[0])
            if parent is None:
                raise NoNodeError("")
            self.check(parent, Permission.DELETE, is_client)
        if node is None:
            raise NoNodeError("")
        has_children = any(path.startswith(operation.path + "/") for path in self.nodes)
        if isinstance(operation, DeleteContainer):
            if has_children:
                raise NotEmptyError("")
            if not node.is_reaped:
                raise BadVersionError("")
            del self.nodes[operation.path]
            return None
        if not isinstance(operation, Delete):
            self.check(node, NEEDED[type(operation)], is_client)
        current = node.aversion if isinstance(operation, SetAcl) else node.version
        if operation.version not in (-1, current):
            raise BadVersionError("")
        if isinstance(operation, SetAcl):
            node.acl, node.aversion = operation.acl, node.aversion + 1
            return node.version
        if isinstance(operation, SetData):
            node.data, node.version = operation.data or b"", node.version + 1
            return node.version
        if isinstance(operation, Delete):
            if has_children:
                raise NotEmptyError("")
            del self.nodes[operation.path]
        return None

    def create(self, session: int, operation: Create | CreateNode, is_client: bool) -> object:
        if isinstance(operation, Create):
            sequential, ephemeral = operation.sequential, operation.ephemeral
            acl, is_reaped = OPEN_ACL, False
        else:
            mode, acl = operation.mode, operation.acl
            sequential, ephemeral = mode.is_sequential, mode.is_ephemeral
            is_reaped = mode is CreateMode.CONTAINER or mode.has_ttl
        parent = self.nodes.get(operation.path.rpartition("/")[0])
        if parent is None:
            raise NoNodeError("")
        self.check(parent, Permission.CREATE, is_client)
        path = operation.path + (f"{parent.created:010d}" if sequential else "")
        if path in self.nodes:
            raise NodeExistsError("")
        if parent.owner:
            raise NoChildrenForEphemeralsError("")
        parent.created += 1
        owner = session if ephemeral else 0
        self.nodes[path] = ModelNode(operation.data or b"", owner=owner, acl=acl, is_reaped=is_reaped)
        return path

    def check(self, node: ModelNode, permission: int, is_client: bool) -> None:
        """The client is nobody in particular, so what everybody may is what it may."""
        if is_client and not node.acl[0].permissions & permission:
            raise NoAuthError("")

    def outcome(self, session: int, request: Request, is_client: bool) -> object:
        """Do all or nothing; return results, or the kind of error."""
        trial = self.copy()
        try:
            results = trial.do(session, request, is_client)
        except ZooKeeperError as error:
            return type(error)
        self.nodes, self.live = trial.nodes, trial.live
        return results

    def contents(self) -> Contents:
        return {
            path: (node.data, node.version, node.acl, node.aversion)
            for path, node in self.nodes.items()
            if path
        }


def contents(bench: Bench) -> Contents:
    return {
        path: (node.data or b"", node.version, node.acl, node.aversion)
        for path, node in bench.server.freeze().nodes.items()
        if path != "/" and not path.startswith("/zookeeper")
    }


def comparable(outcome: object) -> object:
    """A stat is compared by its version, an error by its kind."""
    if isinstance(outcome, ZooKeeperError):
        return type(outcome)
    assert isinstance(outcome, list)
    return [
        result.version if isinstance(result, Stat) else result.path if isinstance(result, Created) else result
        for result in outcome
    ]


def begin(files: MemoryFileSystem) -> tuple[Bench, list[int], Model]:
    bench = Bench(files, snapshot_changes=7, log_reserve_bytes=200)
    sessions = [bench.session() for _ in range(SESSIONS)]
    model = Model(live=set(sessions))
    return bench, sessions, model


@settings(max_examples=300, deadline=None)
@given(groups)
def test_server_gives_what_the_rules_give(script: Script) -> None:
    """Requests of a group are pipelined: each is judged before those ahead of it are in the tree."""
    bench, sessions, model = begin(MemoryFileSystem())
    for group in script:
        waiting = [bench.submit(sessions[index], request, IDENTITIES[index]) for index, request in group]
        expected = [model.outcome(sessions[index], request, index == 1) for index, request in group]
        bench.settle()
        assert expected == [comparable(outcome[0]) for outcome in waiting]
        assert model.contents() == contents(bench)


@settings(max_examples=300, deadline=None)
@given(groups, st.integers(1, 60), st.randoms(use_true_random=False))
def test_crash_anywhere_leaves_a_prefix_that_holds_all_acknowledged(
    script: Script, crash_after: int, random: Random
) -> None:
    """The machine stops at any call to the disk; what was not synced is lost, kept, or torn."""
    files = MemoryFileSystem()
    bench, sessions, model = begin(files)
    history = [model.contents()]
    acknowledged = 0
    files.crash_at = files.changes + crash_after
    waiting: list[list[object]] = []
    try:
        for group in script:
            waiting = []
            for index, request in group:
                waiting.append(bench.submit(sessions[index], request, IDENTITIES[index]))
                model.outcome(sessions[index], request, index == 1)
                history.append(model.contents())
            bench.settle()
            acknowledged = len(history) - 1
    except Crash:
        # Answers leave in order, so those that came are the first of the group.
        acknowledged += sum(1 for outcome in waiting if outcome)
    files.crash(lambda size: random.randint(0, size))
    again = Bench(files)
    assert contents(again) in history[acknowledged:], (
        "an acknowledged change is lost, or there is half of one"
    )
    again.do(again.session(), SetData("/", b"goes on"))
    gone_on = again.server.freeze()
    files.crash(lambda size: size)
    assert gone_on == Bench(files).server.freeze(), "a second recovery gives another tree"


@settings(max_examples=200, deadline=None)
@given(groups, st.integers(0, 2000))
def test_full_disk_refuses_whole_requests_and_loses_none(script: Script, room: int) -> None:
    """When the disk fills up in the middle of a group, each request counts or does not: never half."""
    files = MemoryFileSystem()
    bench, sessions, model = begin(files)
    files.room = room
    for group in script:
        waiting = [bench.submit(sessions[index], request, IDENTITIES[index]) for index, request in group]
        bench.settle()
        if any(isinstance(outcome[0], StorageError) for outcome in waiting):
            # What the rules refused before anything had to be written keeps its own error.
            assert all(isinstance(outcome[0], ZooKeeperError) for outcome in waiting)
            files.room = None
            continue
        for (index, request), outcome in zip(group, waiting, strict=True):
            assert model.outcome(sessions[index], request, index == 1) == comparable(outcome[0])
        assert model.contents() == contents(bench)
    files.crash(lambda size: 0)
    assert model.contents() == contents(Bench(files))
