"""A follower's life, word by word: what it asks, what it is told, and how its log stands then."""

from kalda.broker.replicas.follower.truncation import LeaderOffsets
from kalda.common.errors import ErrorCode
from kalda.protocol.fast.fetch_response import FetchedPartition
from tests.unit.broker.replicas.follower_fixtures import Follower, at, fetched

EXPECTED = """\
follow at epoch 5
ask: session 0 epoch 0: 0 from 30, last epoch 5
told: diverging (4, 40)
log [0, 20) epoch 3 high watermark 0: fetching
ask: session 77 epoch 1: 0 from 20, last epoch 3
told: diverging (3, 15)
log [0, 15) epoch 3 high watermark 0: fetching
ask: session 77 epoch 2: 0 from 15, last epoch 3
told: 25 records, high watermark 30, log start 10
log [10, 40) epoch 4 high watermark 30: fetching
ask: session 77 epoch 3: 0 from 40, last epoch 4
told: NOT_LEADER_OR_FOLLOWER
log [10, 40) epoch 4 high watermark 30: delayed
ask: nothing
20 ms later
ask: session 77 epoch 0: 0 from 40, last epoch 4
told: FENCED_LEADER_EPOCH
log [10, 40) epoch 4 high watermark 30: failed
ask: nothing
follow at epoch 6
ask: session 77 epoch 0: 0 from 40, last epoch 4
told: OFFSET_OUT_OF_RANGE
log [10, 40) epoch 4 high watermark 30: resolving
ask: nothing
told: the leader has [90, 120)
log [90, 90) epoch -1 high watermark 90: fetching
ask: session 77 epoch 0: 0 from 90, last epoch -1
told: 5 records, high watermark 95, log start 90
log [90, 95) epoch 6 high watermark 95: fetching
ask: session 77 epoch 1: 0 from 95, last epoch 6
"""


class Transcript:
    """Writes down what happens to one partition."""

    def __init__(self) -> None:
        self.follower = Follower()
        self.lines: list[str] = []

    def follow(self, epoch: int) -> None:
        self.state = self.follower.follow(epoch=epoch)
        self.lines.append(f"follow at epoch {epoch}")
        self.ask()

    def ask(self) -> None:
        fields = self.follower.request()
        if fields is None:
            self.lines.append("ask: nothing")
            return
        named = ", ".join(
            f"{part.partition} from {part.fetch_offset}, last epoch {part.last_fetched_epoch}"
            for _, parts in fields.topics
            for part in parts
        )
        self.lines.append(f"ask: session {fields.session_id} epoch {fields.session_epoch}: {named}")

    def told(self, what: str, answer: FetchedPartition) -> None:
        self.lines.append(f"told: {what}")
        self.follower.answer(answer)
        self.stand()
        self.ask()

    def bounds(self, start: int, end: int) -> None:
        self.lines.append(f"told: the leader has [{start}, {end})")
        self.follower.core.on_bounds(self.state, LeaderOffsets(start, end, 4, start), 0.0)
        self.stand()
        self.ask()

    def wait(self, milliseconds: int) -> None:
        self.lines.append(f"{milliseconds} ms later")
        self.follower.clock.advance(milliseconds / 1000)
        self.ask()

    def stand(self) -> None:
        log = self.state.partition.log
        self.lines.append(
            f"log [{log.log_start_offset}, {log.log_end_offset}) epoch {log.leader_epochs.latest_epoch} "
            f"high watermark {log.high_watermark}: {self.state.status.value}"
        )


def test_a_follower_over_elections_and_deletions() -> None:
    script = Transcript()
    log = script.follower.replica().log
    log.append_as_follower(at(0, *[b"a"] * 15, epoch=3))
    log.append_as_follower(at(15, *[b"b"] * 5, epoch=3))
    log.append_as_follower(at(20, *[b"c"] * 10, epoch=5))
    script.follow(5)
    script.told("diverging (4, 40)", fetched(diverging=(4, 40)))
    script.told("diverging (3, 15)", fetched(diverging=(3, 15)))
    records = at(15, *[b"d"] * 25, epoch=4)
    script.told(
        "25 records, high watermark 30, log start 10",
        fetched(records=records, high_watermark=30, log_start_offset=10),
    )
    script.told("NOT_LEADER_OR_FOLLOWER", fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    script.wait(20)
    script.told("FENCED_LEADER_EPOCH", fetched(error=ErrorCode.FENCED_LEADER_EPOCH))
    script.follow(6)
    script.told("OFFSET_OUT_OF_RANGE", fetched(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    script.bounds(90, 120)
    script.told(
        "5 records, high watermark 95, log start 90",
        fetched(records=at(90, *[b"e"] * 5, epoch=6), high_watermark=95, log_start_offset=90),
    )
    assert EXPECTED.splitlines() == script.lines
