"""A snapshot taken while the tree moved, as a ZooKeeper takes it, and the log after it give the very tree."""

from random import Random
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.port import Create, Delete, SetData
from kalda.zookeeper.server.data_tree import DataTree, FrozenTree, Znode, parent_path
from kalda.zookeeper.server.processor_requests import (
    CloseSession,
    CreateMode,
    CreateNode,
    Multi,
    SetAcl,
    Write,
)
from kalda.zookeeper.server.txn_log import TxnLog
from kalda.zookeeper.server.txns import OPEN_ACL, Txn
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import MemoryFileSystem

PATHS = ("/a", "/a/x", "/a/x/p", "/b")
paths = st.sampled_from(PATHS)
acls = st.sampled_from((OPEN_ACL, (Acl(1, "world", "anyone"),), (Acl(31, "ip", "::1"),)))
changes: st.SearchStrategy[Write] = st.one_of(
    st.builds(
        lambda path, acl, mode: CreateNode(path, b"", acl, mode, 10 if mode.has_ttl else -1),
        paths,
        acls,
        st.sampled_from(CreateMode),
    ),
    st.builds(Create, paths),
    st.builds(SetData, paths, st.binary(max_size=2)),
    st.builds(SetAcl, paths, acls),
    st.builds(Delete, paths),
    st.builds(lambda path: Multi([Delete(path), Create(path)]), paths),
    st.just(CloseSession()),
)
Script: TypeAlias = list[tuple[int, Write]]


def history_of(script: Script) -> list[Txn]:
    """The transactions that the changes make; a session that was closed begins again under another id."""
    files = MemoryFileSystem()
    bench = Bench(files)
    sessions = [bench.session() for _ in range(2)]
    for index, change in script:
        bench.do(sessions[index], change)
        if isinstance(change, CloseSession):
            sessions[index] = bench.session()
    return list(TxnLog("/data/version-2", files).recover(0))


def fuzzy(moments: list[FrozenTree], random: Random) -> FrozenTree:
    """Walk down from the root while time passes: what is met late is met as it is by then, or not at all."""
    nodes: dict[str, Znode] = {}
    now = 0

    def visit(path: str) -> None:
        nonlocal now
        if random.random() < 0.4:
            now = min(now + random.randint(1, 3), len(moments) - 1)
        seen = moments[now].nodes
        if path not in seen:
            return
        nodes[path] = seen[path]
        children = sorted(other for other in seen if other != "/" and parent_path(other) == path)
        random.shuffle(children)
        for child in children:
            visit(child)

    visit("/")
    return FrozenTree(moments[0].zxid, nodes, moments[0].sessions, is_fuzzy=True)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), changes), min_size=3, max_size=25),
    st.integers(0, 10),
    st.integers(0, 15),
    st.randoms(use_true_random=False),
)
def test_log_completes_what_a_fuzzy_snapshot_half_saw(
    script: Script, start: int, length: int, random: Random
) -> None:
    history = history_of(script)
    tree = DataTree()
    moments = [tree.freeze()]
    for txn in history:
        tree.apply(txn)
        moments.append(tree.freeze())
    start = min(start, len(history))
    again = DataTree.restore(fuzzy(moments[start : start + length + 1], random))
    for txn in history[start:]:
        again.apply(txn)
    assert again.freeze() == tree.freeze()
    for path in tree.nodes:
        assert again.children(path) == tree.children(path)
        assert again.stat(path) == tree.stat(path)
    assert again.ephemeral_owners() == tree.ephemeral_owners()
    assert (again.containers, again.ttl_paths) == (tree.containers, tree.ttl_paths)


def test_owner_that_a_fuzzy_snapshot_does_not_know_is_ended_after_recovery() -> None:
    """Its session ended while the snapshot was taken, before the owner was met on the walk."""
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    bench.do(session, Create("/e", ephemeral=True))
    frozen = bench.server.freeze()
    tree = DataTree.restore(FrozenTree(frozen.zxid, frozen.nodes, {}, is_fuzzy=True))
    assert {session: 0} == tree.sessions
