"""What the coordination port promises, on every engine: broker code cannot tell them apart."""

import asyncio

import pytest

from kalda.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    ZooKeeperError,
)
from kalda.zookeeper.port import (
    Check,
    Create,
    Delete,
    EventType,
    Operation,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
)
from tests.integration.zookeeper.client.engines import (
    EmbeddedEngine,
    EnsembleEngine,
    EtcdEngine,
    eventually,
    states_of,
)

Engine = EmbeddedEngine | EnsembleEngine | EtcdEngine


async def test_znodes_are_created_read_changed_and_deleted(engine: Engine) -> None:
    session = await engine.connect()
    assert session.state is SessionState.CONNECTED
    assert "/a" == await session.create("/a", b"one")
    data, stat = await session.get("/a")
    assert (b"one", 0, 3, 0) == (data, stat.version, stat.data_length, stat.ephemeral_owner)
    assert stat.czxid == stat.mzxid
    changed = await session.set("/a", b"two!", 0)
    assert (1, 4) == (changed.version, changed.data_length)
    assert changed == await session.exists("/a")
    assert await session.exists("/b") is None
    await session.create("/a/y")
    await session.create("/a/x", b"")
    assert ["x", "y"] == await session.children("/a")
    assert await session.get("/a/y") == (b"", await session.exists("/a/y"))
    await session.delete("/a/x", 0)
    await session.delete("/a/y")
    await session.delete("/a")
    assert await session.exists("/a") is None


async def test_sequential_znodes_count_up_even_without_a_name(engine: Engine) -> None:
    session = await engine.connect()
    await session.create("/queue")
    assert "/queue/n-0000000000" == await session.create("/queue/n-", sequential=True)
    assert "/queue/0000000001" == await session.create("/queue/", sequential=True)
    (path,) = await session.multi([Create("/queue/m-", sequential=True)])
    assert "/queue/m-0000000002" == path


async def test_errors_are_ours_and_name_the_path(engine: Engine) -> None:
    session = await engine.connect()
    await session.create("/a")
    await session.create("/a/b")
    await session.create("/e", ephemeral=True)
    for operation, error_class, path in (
        (session.get("/none"), NoNodeError, "/none"),
        (session.children("/none"), NoNodeError, "/none"),
        (session.set("/none", b""), NoNodeError, "/none"),
        (session.delete("/none"), NoNodeError, "/none"),
        (session.create("/none/below"), NoNodeError, "/none/below"),
        (session.create("/a"), NodeExistsError, "/a"),
        (session.set("/a", b"", 7), BadVersionError, "/a"),
        (session.delete("/a/b", 7), BadVersionError, "/a/b"),
        (session.delete("/a"), NotEmptyError, "/a"),
        (session.create("/e/child"), NoChildrenForEphemeralsError, "/e/child"),
    ):
        with pytest.raises(error_class) as caught:
            await operation
        assert isinstance(caught.value, ZooKeeperError)
        # Of a parent that is not there, either name will do.
        assert caught.value.path in (path, path.rsplit("/", 1)[0])
        assert caught.value.operation_index is None


# Numbered: a name that cannot be encoded cannot be a test's either.
@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//a", "/a//b", "/./a", "/a/..", "/a\x00", "/a\ud800", "/\x7f"], ids=range(10)
)
async def test_bad_paths_are_refused_and_the_session_goes_on(engine: Engine, path: str) -> None:
    session = await engine.connect()
    for operation in (
        session.get(path),
        session.exists(path),
        session.children(path),
        session.create(path),
        session.set(path, b""),
        session.delete(path),
        session.multi([Delete(path)]),
    ):
        with pytest.raises(BadArgumentsError):
            await operation
    assert "/fine" == await session.create("/fine")


async def test_root_is_there_and_stays(engine: Engine) -> None:
    session = await engine.connect()
    assert await session.exists("/") is not None
    with pytest.raises(NodeExistsError):
        await session.create("/")


async def test_get_many_keeps_the_order_and_marks_what_is_missing(engine: Engine) -> None:
    session = await engine.connect()
    creations = [Create(f"/n{i}", str(i).encode()) for i in range(0, 500, 2)]
    size = session.operations_max
    for start in range(0, len(creations), size):
        await session.multi(creations[start : start + size])
    found = await session.get_many([f"/n{i}" for i in range(500)])
    assert [i if i % 2 == 0 else None for i in range(500)] == [
        None if entry is None else int(entry[0]) for entry in found
    ]
    assert [] == await session.get_many([])


async def test_multi_does_all_or_nothing(engine: Engine) -> None:
    session = await engine.connect()
    await session.create("/a", b"old")
    results = await session.multi(
        [Check("/a", 0), SetData("/a", b"new", 0), Create("/b"), Create("/b/c", b"x"), Delete("/b/c", 0)]
    )
    assert results[0] is None
    assert isinstance(results[1], Stat)
    assert (1, ["/b", "/b/c", None]) == (results[1].version, results[2:])
    failing: list[tuple[list[Operation], type[ZooKeeperError], int]] = [
        ([Create("/z"), Check("/a", 0)], BadVersionError, 1),
        ([Create("/z"), Create("/a"), Create("/y")], NodeExistsError, 1),
        ([SetData("/none", b""), Create("/z")], NoNodeError, 0),
        ([Create("/z"), Create("/y"), Delete("/z", 5)], BadVersionError, 2),
        ([Create("/z"), Create("bad")], BadArgumentsError, 1),
    ]
    for operations, error_class, index in failing:
        with pytest.raises(error_class) as caught:
            await session.multi(operations)
        assert isinstance(caught.value, ZooKeeperError)
        assert index == caught.value.operation_index
        assert await session.exists("/z") is None
    assert b"new" == (await session.get("/a"))[0]


async def test_multi_many_gives_each_transaction_its_own_outcome(engine: Engine) -> None:
    session = await engine.connect()
    outcomes = await session.multi_many(
        [
            [Create("/a"), Create("/a/b")],
            [Create("/c"), Create("/none/d")],
            [Create("bad")],
            [Delete("/a/b"), Delete("/a")],
        ]
    )
    assert ["/a", "/a/b"] == outcomes[0]
    assert isinstance(outcomes[1], NoNodeError)
    assert 1 == outcomes[1].operation_index
    assert isinstance(outcomes[2], BadArgumentsError)
    assert [None, None] == outcomes[3]
    assert await session.children("/") == [
        name for name in await session.children("/") if name == "zookeeper"
    ]


async def test_operations_take_effect_in_the_order_of_the_calls(engine: Engine) -> None:
    session = await engine.connect()
    await session.create("/a", b"0")
    calls = []
    for number in range(1, 200):
        calls.append(session.set("/a", str(number).encode(), number - 1))
        calls.append(session.get("/a"))  # type: ignore[arg-type]  # a list of both
    results = await asyncio.gather(*calls)
    assert list(range(1, 200)) == [int(result[0]) for result in results[1::2]]  # type: ignore[index]


async def test_each_kind_of_watch_reports_its_changes_once(engine: Engine) -> None:
    session = await engine.connect()
    events: list[tuple[str, WatchEvent]] = []

    def watch(name: str):  # type: ignore[no-untyped-def]  # a callback's factory
        return lambda event: events.append((name, event))

    await session.create("/a")
    await session.get("/a", watch("get"))
    await session.exists("/a", watch("exists"))
    await session.children("/a", watch("children"))
    assert await session.exists("/new", watch("absent")) is None
    await session.set("/a", b"1")
    await session.set("/a", b"2")
    await session.create("/a/b")
    await session.create("/new")
    await session.get("/a", watch("deleted"))
    await session.delete("/a/b")
    await session.delete("/a")
    await session.exists("/a")
    assert [
        ("get", WatchEvent(EventType.DATA_CHANGED, "/a")),
        ("exists", WatchEvent(EventType.DATA_CHANGED, "/a")),
        ("children", WatchEvent(EventType.CHILDREN_CHANGED, "/a")),
        ("absent", WatchEvent(EventType.CREATED, "/new")),
        ("deleted", WatchEvent(EventType.DELETED, "/a")),
    ] == events


async def test_same_callback_on_the_same_path_is_called_once(engine: Engine) -> None:
    session = await engine.connect()
    events: list[WatchEvent] = []
    await session.create("/a")
    for _ in range(3):
        await session.get("/a", events.append)
        await session.children("/a", events.append)
        await session.exists("/a", events.append)
        await session.children("/a", events.append)
    await session.delete("/a")
    await session.exists("/a")
    assert [WatchEvent(EventType.DELETED, "/a")] == events


async def test_failed_reads_leave_no_watch(engine: Engine) -> None:
    session = await engine.connect()
    events: list[WatchEvent] = []
    with pytest.raises(NoNodeError):
        await session.get("/a", events.append)
    with pytest.raises(NoNodeError):
        await session.children("/a", events.append)
    assert [None] == await session.get_many(["/a"], events.append)
    await session.create("/a")
    await session.create("/a/b")
    await session.exists("/a")
    assert [] == events


async def test_watch_is_told_before_newer_data_is_returned(engine: Engine) -> None:
    """Whoever reads, acts and reads again must not take the new for the old and wait for ever."""
    reader, writer = await engine.connect(), await engine.connect()
    await writer.create("/a", b"0")
    done = asyncio.Event()

    async def write() -> None:
        for number in range(1, 400):
            await writer.set("/a", str(number).encode())
        done.set()

    changes = 0
    writing = asyncio.create_task(write())
    while not done.is_set():
        fired: list[WatchEvent] = []
        data, _ = await reader.get("/a", fired.append)
        # Pipelined: events and answers come in the same breath.
        for later, _ in await asyncio.gather(*(reader.get("/a") for _ in range(8))):
            if later != data:
                changes += 1
                assert fired, f"{later!r} came after {data!r} without a word from the watch"
                break
    await writing
    assert changes


async def test_ephemeral_znodes_end_with_their_session(engine: Engine) -> None:
    first, second = await engine.connect(), await engine.connect()
    assert first.session_id != second.session_id
    await first.create("/e", ephemeral=True)
    stat = await second.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == first.session_id
    events: list[WatchEvent] = []
    await second.get("/e", events.append)
    states = states_of(first)
    await first.close()
    assert [SessionState.CLOSED] == states
    await eventually(lambda: bool(events))
    assert [WatchEvent(EventType.DELETED, "/e")] == events
    with pytest.raises(SessionExpiredError):
        await first.get("/")
    await first.close()


async def test_expired_session_is_told_and_its_watches_are_silent(engine: Engine) -> None:
    session, other = await engine.connect(), await engine.connect()
    await session.create("/e", ephemeral=True)
    await session.create("/p")
    events: list[WatchEvent] = []
    await session.get("/p", events.append)
    await session.children("/p", events.append)
    before = session.session_id
    states = states_of(session)
    await engine.expire(session)
    assert [
        SessionState.EXPIRED,
        SessionState.CONNECTED,
    ] == [state for state in states if state is not SessionState.SUSPENDED]
    assert session.session_id != before
    assert session.state is SessionState.CONNECTED
    assert await session.exists("/e") is None
    await other.set("/p", b"1")
    await other.create("/p/child")
    assert b"1" == (await session.get("/p", events.append))[0]
    assert [] == events
    await other.set("/p", b"2")
    await eventually(lambda: bool(events))
    assert [WatchEvent(EventType.DATA_CHANGED, "/p")] == events


async def test_cancelled_wait_harms_no_other(engine: Engine) -> None:
    session = await engine.connect()
    await session.create("/a")
    tasks = [asyncio.create_task(session.set("/a", str(i).encode())) for i in range(50)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, Stat) for result in results[1::2])
    assert b"49" == (await session.get("/a"))[0]
