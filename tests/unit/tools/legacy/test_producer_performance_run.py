"""What the load test sends, and the columns of 0.8.2."""

from kalda.tools.legacy.producer_performance_run import Load, Report, Sent, run_threads
from kalda.tools.legacy.simple_date_format import SimpleDateFormat


class RecordingSink:
    def __init__(self, refused: bytes | None = None) -> None:
        self.sent: list[tuple[str, bytes, bytes]] = []
        self.is_closed = False
        self._refused = refused

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        if key == self._refused:
            raise ValueError("refused")
        self.sent.append((topic, key, value))

    def close(self) -> None:
        self.is_closed = True


class Lines:
    def __init__(self, interval: int | None = None) -> None:
        self.lines: list[str] = []
        self._now = 1_000_000.0
        self.report = Report(self._write, SimpleDateFormat("s.SSS"), (1, 100, 200), interval, self._clock)

    def _clock(self) -> float:
        self._now += 0.5
        return self._now

    def _write(self, document: object, line: str) -> None:
        self.lines.append(line)


def load(count: int, *topics: str, initial_id: int | None = None, size: int = 5) -> Load:
    return Load(topics, count, size, True, initial_id, 0.0)


def test_each_message_goes_to_each_topic_with_its_number_as_the_key() -> None:
    """Keys are Java's BigInteger.toByteArray: 128 takes two bytes."""
    sink, lines = RecordingSink(), Lines()
    (sent,) = run_threads(load(129, "a", "b"), [sink], lines.report)
    assert ("a", b"\0", bytes(5)) == sink.sent[0]
    assert [("a", b"\0\x80", bytes(5)), ("b", b"\0\x80", bytes(5))] == sink.sent[-2:]
    assert (258, 1290, 0) == (sent.messages, sent.bytes, sent.failures)
    assert sink.is_closed


def test_ids_of_threads_do_not_overlap() -> None:
    sinks = [RecordingSink(), RecordingSink()]
    run_threads(load(2, "t", initial_id=7, size=50), sinks, Lines().report)
    heads = [value.rstrip(b"x") for sink in sinks for _, _, value in sink.sent]
    assert [
        b"Topic:t:ThreadID:%d:MessageID:%010d:" % (thread, number)
        for thread, number in [(0, 7), (0, 8), (1, 9), (1, 10)]
    ] == heads
    assert {50} == {len(value) for sink in sinks for _, _, value in sink.sent}


def test_sizes_vary_up_to_the_given_one() -> None:
    varying = Load(("t",), 1, 9, False, None, 0.0)
    assert 9 == len(varying.value("t", 0, 0, lambda below: below - 1))
    assert 1 == len(varying.value("t", 0, 0, lambda below: 0))


def test_refused_message_is_counted_and_the_others_are_sent() -> None:
    sink = RecordingSink(refused=b"\1")
    (sent,) = run_threads(load(3, "t"), [sink], Lines().report)
    assert (2, 1, "refused") == (sent.messages, sent.failures, str(sent.last_failure))


def test_sum_has_the_columns_of_08() -> None:
    lines = Lines()
    lines.report.sum([Sent(1024 * 1024, 1000), Sent(1024 * 1024, 1000)])
    assert ["40.500, 41.000, 1, 100, 200, 2.00, 4.0000, 2000, 4000.0000"] == lines.lines


def test_detailed_lines_count_from_the_last_one() -> None:
    lines = Lines(interval=10)
    lines.report.on_sent(3, Sent(5, 9))
    lines.report.on_sent(3, Sent(1024 * 1024, 10))
    lines.report.on_sent(3, Sent(3 * 1024 * 1024, 20))
    lines.report.sum([])
    assert [
        "41.000, 1, 3, 100, 200, 1.00, 2.0000, 10, 20.0000",
        "41.500, 1, 3, 100, 200, 3.00, 4.0000, 20, 20.0000",
    ] == lines.lines
