"""What is committed has arrived: batches, failures, stops, and several sources and producers."""

import threading
from collections.abc import Callable, Sequence

import pytest

from kalda.tools.legacy import mirror_maker_run
from kalda.tools.legacy.mirror_maker_run import BATCH_BYTES_MAX, Copied, DataChannel, MirrorMaker, Outstanding

WAIT_SECONDS = 60


@pytest.fixture(autouse=True)
def _short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look costs a second of the tests' clock."""
    monkeypatch.setattr(mirror_maker_run, "_POLL_SECONDS", 0.01)


def message(number: int, key: bytes | None = None, topic: str = "t") -> Copied:
    return Copied(topic, key, b"%d" % number, -1)


def never() -> bool:
    return False


class ScriptedSource:
    """Returns messages, then none; notes how many of them were taken at each commit."""

    def __init__(self, messages: Sequence[Copied], on_end: Callable[[], None] = lambda: None) -> None:
        self._messages = messages
        self._on_end = on_end
        self.taken = 0
        self.commits: list[int] = []
        self.is_shut_down = False
        self.on_commit: Callable[[], None] = lambda: None

    def take(self) -> Copied | None:
        if self.taken == len(self._messages):
            self._on_end()
            return None
        self.taken += 1
        return self._messages[self.taken - 1]

    def commit(self) -> None:
        self.commits.append(self.taken)
        self.on_commit()

    def set_has_arrived(self, has_arrived: Callable[[], bool]) -> None:
        self.has_arrived = has_arrived

    def shutdown(self) -> None:
        self.is_shut_down = True


class RecordingTarget:
    """Keeps what was sent; refuses batches with a certain message."""

    def __init__(self, refused: bytes | None = None) -> None:
        self.sent: list[Copied] = []
        self.is_closed = False
        self._refused = refused

    def send(self, batch: Sequence[Copied]) -> None:
        if any(each.payload == self._refused for each in batch):
            raise ValueError("refused")
        self.sent += batch

    def close(self) -> None:
        self.is_closed = True


class StepClock:
    """Goes on by one second with each look."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            self._now += 1
            return self._now


def mirror(
    sources: Sequence[ScriptedSource],
    targets: Sequence[RecordingTarget],
    *,
    commit_interval_s: float = 1e9,
    aborts: bool = True,
) -> MirrorMaker:
    return MirrorMaker(
        sources,
        targets,
        queue_size=10,
        commit_interval_s=commit_interval_s,
        aborts_on_send_failure=aborts,
        hash_key=lambda key: key[0],
        clock=StepClock(),
    )


def run(made: MirrorMaker, sources: Sequence[ScriptedSource]) -> None:
    """Run until all sources have nothing left."""
    ended: set[int] = set()

    def end(number: int) -> Callable[[], None]:
        def note() -> None:
            ended.add(number)
            if len(ended) == len(sources):
                made.stop()

        return note

    for number, each in enumerate(sources):
        each._on_end = end(number)
    runner = threading.Thread(target=made.run)
    runner.start()
    runner.join(WAIT_SECONDS)
    assert not runner.is_alive()


def test_all_is_copied_and_committed_at_the_end() -> None:
    messages = [message(number) for number in range(50)]
    source, target = ScriptedSource(messages), RecordingTarget()
    made = mirror([source], [target])
    run(made, [source])
    assert messages == target.sent
    assert [50] == source.commits
    assert (50, 0, None) == (made.copied_count, made.dropped_count, made.failure)
    assert source.is_shut_down
    assert target.is_closed


def test_commit_covers_only_what_has_arrived() -> None:
    """At each commit the target has every message that the stream had returned."""
    source, target = ScriptedSource([message(number) for number in range(100)]), RecordingTarget()
    arrived: list[int] = []
    source.on_commit = lambda: arrived.append(len(target.sent))
    run(mirror([source], [target], commit_interval_s=7), [source])
    assert source.commits == arrived
    assert len(source.commits) > 5


def test_sources_leave_their_group_when_all_have_committed() -> None:
    """One that leaves earlier has the others rebalance, and these forget what they have consumed."""
    sources = [ScriptedSource([message(number)]) for number in range(3)]
    left: list[list[bool]] = []
    for each in sources:
        each.on_commit = lambda: left.append([other.is_shut_down for other in sources])
    run(mirror(sources, [RecordingTarget()]), sources)
    assert [[False, False, False]] * 3 == left


def test_message_that_cannot_be_sent_ends_the_copy_without_a_commit() -> None:
    sources = [ScriptedSource([message(number) for number in range(30)]), ScriptedSource([message(99)] * 20)]
    target = RecordingTarget(refused=b"5")
    made = mirror(sources, [target])
    run(made, sources)
    assert "refused" == str(made.failure)
    assert [[], []] == [each.commits for each in sources]
    assert all(each.is_shut_down for each in sources)
    assert target.is_closed


def test_without_abort_the_batch_is_dropped_and_counted() -> None:
    messages = [message(number, b"\0") for number in range(30)]
    source, target = ScriptedSource(messages), RecordingTarget(refused=b"5")
    made = mirror([source], [target], aborts=False)
    run(made, [source])
    assert made.failure is None
    assert 30 == made.copied_count + made.dropped_count == len(target.sent) + made.dropped_count
    assert message(5, b"\0") not in target.sent
    assert [30] == source.commits


class DeadTarget(RecordingTarget):
    """Waits for a cluster that never comes back, until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self._closed = threading.Event()

    def send(self, batch: Sequence[Copied]) -> None:
        self.entered.set()
        assert self._closed.wait(WAIT_SECONDS)
        raise ValueError("closed during the send")

    def close(self) -> None:
        self._closed.set()
        super().close()


@pytest.mark.parametrize("count", [5, 5_000])
def test_stop_while_the_target_is_away_commits_nothing(count: int) -> None:
    """Neither if all that was read waits to be sent, nor if the channel is full."""
    source, target = ScriptedSource([message(number) for number in range(count)]), DeadTarget()
    made = mirror([source], [target])
    runner = threading.Thread(target=made.run)
    runner.start()
    assert target.entered.wait(WAIT_SECONDS)
    made.stop()
    runner.join(WAIT_SECONDS)
    assert not runner.is_alive()
    assert ([], True, True) == (source.commits, source.is_shut_down, target.is_closed)
    assert made.failure is None


def test_source_that_fails_ends_the_copy() -> None:
    class Broken(ScriptedSource):
        def take(self) -> Copied | None:
            raise ValueError("no more")

    sources = [Broken([]), ScriptedSource([message(1)])]
    made = mirror(sources, [RecordingTarget()])
    runner = threading.Thread(target=made.run)
    runner.start()
    runner.join(WAIT_SECONDS)
    assert "no more" == str(made.failure)
    assert [] == sources[0].commits
    assert all(each.is_shut_down for each in sources)


def test_messages_of_a_key_stay_in_order_with_several_producers() -> None:
    messages = [message(number, b"%d" % (number % 5)) for number in range(200)]
    sources = [ScriptedSource(messages), ScriptedSource([message(number) for number in range(40)])]
    targets = [RecordingTarget(), RecordingTarget()]
    made = mirror(sources, targets)
    run(made, sources)
    for key in range(5):
        own = [[each for each in target.sent if each.key == b"%d" % key] for target in targets]
        assert [] in own, "one producer has all of them"
        assert [each for each in messages if each.key == b"%d" % key] == own[0] + own[1]
    assert 240 == made.copied_count
    assert {20} == {len([each for each in target.sent if each.key is None]) for target in targets}


@pytest.mark.parametrize(
    ("sizes", "expected"), [((1, 1, 1), 3), ((BATCH_BYTES_MAX, 1), 1), ((9_000_000, 1), 1)]
)
def test_batch_is_bounded_by_bytes(sizes: tuple[int, ...], expected: int) -> None:
    """A message that is larger than that goes alone."""
    channel, outstanding = DataChannel(10, 1, lambda key: 0), Outstanding()
    for size in sizes:
        assert channel.put(Copied("t", None, bytes(size), -1), outstanding, never)
    batch = channel.take(0)
    assert batch is not None
    assert expected == len(batch)


def test_closed_channel_frees_those_who_wait() -> None:
    channel, outstanding = DataChannel(1, 1, lambda key: 0), Outstanding()
    assert channel.put(message(0), outstanding, never)
    results: list[object] = []
    writer = threading.Thread(target=lambda: results.append(channel.put(message(1), outstanding, never)))
    writer.start()
    channel.close()
    writer.join(WAIT_SECONDS)
    assert [False] == results
    assert channel.take(0) is None
    assert not outstanding.wait_none(0.0)
