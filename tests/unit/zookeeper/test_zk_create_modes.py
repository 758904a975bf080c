"""What clients of ZooKeeper's wire may ask for beyond the coordination port."""

import pytest

from kalda.zookeeper.errors import BadArgumentsError, NoChildrenForEphemeralsError, NodeExistsError
from kalda.zookeeper.port import Check, Create, SetData, Stat
from kalda.zookeeper.server.data_tree import INT_MAX, DataTree
from kalda.zookeeper.server.ephemeral_owner import CONTAINER_OWNER, TTL_MS_MAX, is_session, ttl_of, ttl_owner
from kalda.zookeeper.server.prep_processor import DATA_BYTES_LIMIT, PrepProcessor
from kalda.zookeeper.server.processor_requests import Created, CreateMode, CreateNode, Multi, Read, Request
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import MemoryFileSystem


@pytest.fixture
def bench() -> Bench:
    return Bench(MemoryFileSystem())


def created(outcome: object) -> Created:
    assert isinstance(outcome, list), outcome
    assert isinstance(outcome[0], Created)
    return outcome[0]


@pytest.mark.parametrize("mode", CreateMode)
def test_each_mode_creates_its_kind(bench: Bench, mode: CreateMode) -> None:
    session = bench.session()
    ttl_ms = 1000 if mode.has_ttl else -1
    result = created(bench.do(session, CreateNode("/a", b"data", mode=mode, ttl_ms=ttl_ms)))
    assert result.path == ("/a0000000000" if mode.is_sequential else "/a")
    assert result.stat.ephemeral_owner == (session if mode.is_ephemeral else 0)
    stat = bench.do(session, Read(lambda tree, watches: tree.stat(result.path)))
    assert stat == result.stat
    tree = DataTree.restore(bench.server.freeze())
    assert (mode is CreateMode.CONTAINER) == (result.path in tree.containers)
    assert (result.path in tree.ttl_paths) == mode.has_ttl
    assert tree.ephemerals(session) == ({result.path} if mode.is_ephemeral else set())


@pytest.mark.parametrize("mode", CreateMode)
def test_only_ephemerals_cannot_have_children(bench: Bench, mode: CreateMode) -> None:
    session = bench.session()
    ttl_ms = 1000 if mode.has_ttl else -1
    path = created(bench.do(session, CreateNode("/a", mode=mode, ttl_ms=ttl_ms))).path
    outcome = bench.do(session, CreateNode(f"{path}/b"))
    assert isinstance(outcome, NoChildrenForEphemeralsError if mode.is_ephemeral else list)


@pytest.mark.parametrize("ttl_ms", [-1, 0, TTL_MS_MAX + 1])
def test_time_to_live_must_fit_its_field(bench: Bench, ttl_ms: int) -> None:
    node = CreateNode("/a", mode=CreateMode.PERSISTENT_WITH_TTL, ttl_ms=ttl_ms)
    assert isinstance(bench.do(bench.session(), node), BadArgumentsError)


def test_time_to_live_belongs_to_its_modes_only(bench: Bench) -> None:
    assert isinstance(bench.do(bench.session(), CreateNode("/a", ttl_ms=1000)), BadArgumentsError)


def test_owner_field_is_encoded_as_by_zookeeper() -> None:
    """The field is in snapshots that a ZooKeeper reads."""
    assert 0xFF00_0000_0000_0001 == ttl_owner(1) % 2**64
    assert 0xFF00_00FF_FFFF_FFFF == ttl_owner(TTL_MS_MAX) % 2**64
    assert 0x8000_0000_0000_0000 == CONTAINER_OWNER % 2**64
    assert [1, 1000, TTL_MS_MAX] == [ttl_of(ttl_owner(ttl_ms)) for ttl_ms in (1, 1000, TTL_MS_MAX)]
    assert ttl_of(CONTAINER_OWNER) is None
    owners = [0, CONTAINER_OWNER, ttl_owner(1), ttl_owner(TTL_MS_MAX)]
    assert not any(map(is_session, owners))
    assert all(map(is_session, [1, 0x0100_0000_0000_0001, -(0x7E << 56)]))


def test_null_data_is_kept_apart_from_empty_data(bench: Bench) -> None:
    session = bench.session()
    bench.do(session, CreateNode("/null", None))
    bench.do(session, CreateNode("/empty", b""))
    bench.do(session, CreateNode("/was", b"something"))
    bench.do(session, SetData("/was", None))
    bench.files.crash(lambda size: 0)
    assert {"/null": None, "/empty": b"", "/was": None} == Bench(bench.files).tree()


def test_created_in_a_multi_tells_of_the_znode_when_it_was_new(bench: Bench) -> None:
    """What later operations of the multi did to it is for their own results to tell."""
    session = bench.session()
    outcome = bench.multi(
        session,
        CreateNode("/a", b"123"),
        SetData("/a", b"12345"),
        CreateNode("/a/e", mode=CreateMode.EPHEMERAL_SEQUENTIAL),
        Create("/a/plain"),
        Check("/a", 1),
    )
    assert isinstance(outcome, list)
    made, changed, ephemeral, path, checked = outcome
    assert ("/a", 0, 3, 0) == (made.path, made.stat.version, made.stat.data_length, made.stat.num_children)
    assert (1, 5) == (changed.version, changed.data_length)
    assert ("/a/e0000000000", session) == (ephemeral.path, ephemeral.stat.ephemeral_owner)
    assert ("/a/plain", None) == (path, checked)


def test_counter_that_is_used_up_refuses_sequences_and_nothing_else() -> None:
    """It has 32 bits on disk; one more must not end the server."""
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    bench.do(session, Create("/q"))
    tree = bench.do(session, Read(lambda tree, watches: tree))
    assert isinstance(tree, DataTree)
    tree.nodes["/q"] = tree.nodes["/q"]._replace(created_count=INT_MAX - 1, version=INT_MAX)
    assert [f"/q/{INT_MAX - 1}"] == bench.do(session, Create("/q/", sequential=True))
    assert isinstance(bench.do(session, Create("/q/", sequential=True)), BadArgumentsError)
    assert ["/q/plain"] == bench.do(session, Create("/q/plain"))
    assert isinstance(bench.do(session, Create("/q/plain")), NodeExistsError)
    stat = bench.do(session, SetData("/q", b""))
    assert isinstance(stat, list)
    assert isinstance(stat[0], Stat)
    assert -(INT_MAX + 1) <= stat[0].cversion <= INT_MAX
    assert -INT_MAX - 1 == stat[0].version


def test_version_that_would_mean_any_is_left_out(bench: Bench) -> None:
    """A client could not name -1 in a compare-and-set: it means any version."""
    session = bench.session()
    bench.do(session, Create("/a"))
    tree = bench.do(session, Read(lambda tree, watches: tree))
    assert isinstance(tree, DataTree)
    tree.nodes["/a"] = tree.nodes["/a"]._replace(version=-2)
    outcome = bench.do(session, SetData("/a", b"", -2))
    assert isinstance(outcome, list)
    assert isinstance(outcome[0], Stat)
    assert 0 == outcome[0].version


def test_largest_data_is_a_setting() -> None:
    """`jute.maxbuffer` of an ensemble may be larger or smaller than its default."""
    refused: list[object] = []

    class Last:
        def process(self, request: Request) -> None:
            refused.append(request.error)

    tree = DataTree()
    tree.sessions[1] = 1000
    prep = PrepProcessor(tree, lambda: 0, Last(), data_bytes_max=10)
    for size in (10, 11):
        prep.process(Request(1, SetData("/", bytes(size)), lambda outcome: None))
    assert refused[0] is None
    assert isinstance(refused[1], BadArgumentsError)
    for wrong in (0, DATA_BYTES_LIMIT + 1):
        with pytest.raises(ValueError, match=r"jute\.maxbuffer"):
            PrepProcessor(tree, lambda: 0, Last(), data_bytes_max=wrong)


def test_multi_that_would_not_fit_into_the_log_is_refused(bench: Bench) -> None:
    """The log could write it, but recovery after damage would not find it again."""
    piece = bytes(1024 * 1024 - 1)
    outcome = bench.do(bench.session(), Multi([SetData("/", piece)] * (DATA_BYTES_LIMIT // len(piece) + 1)))
    assert isinstance(outcome, BadArgumentsError)
    assert outcome.operation_index == DATA_BYTES_LIMIT // len(piece)


def test_descendants_are_counted_at_any_depth(bench: Bench) -> None:
    session = bench.session()
    bench.multi(session, Create("/a"), Create("/a/b"), Create("/a/b/c"), Create("/a/d"), Create("/ab"))
    tree = DataTree.restore(bench.server.freeze())
    assert [3, 1, 0, 0] == [tree.all_children_count(path) for path in ("/a", "/a/b", "/ab", "/missing")]
    assert len(tree.nodes) - 1 == tree.all_children_count("/")
