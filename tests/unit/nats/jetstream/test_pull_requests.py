"""The requests that wait at a pull consumer: their order, and what the number of those that wait costs."""

import random

import pytest

from kalda.nats.jetstream.consumer_config import ConsumerConfig
from kalda.nats.jetstream.pull_requests import (
    BODY_BYTES_MAX,
    ENDED_AT_ONCE,
    NoRoomError,
    PullRefusedError,
    PullRequest,
    PullRequests,
    parse_pull,
)
from kalda.nats.jetstream.shared_limits import ClientShares

CONFIG = ConsumerConfig(ack_policy="explicit", max_waiting=2_000)


class Counted(PullRequest):
    """Counts how often any request is looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        Counted.looks += 1
        return super().__getattribute__(name)


def request(
    batch: int = 1, expires: float | None = None, heartbeat: float = 0.0, *, is_no_wait: bool = False
) -> PullRequest:
    return PullRequest(b"r", batch, 0, expires, is_no_wait, heartbeat, heartbeat or None)


def test_many_waiting_requests_are_not_looked_at_for_each_message() -> None:
    """A hostile client lets 2,000 requests wait: each message looked at all of them, in one turn."""
    requests = PullRequests(ClientShares(1 << 30, 1))
    for _ in range(2_000):
        requests.add(Counted(b"r", 5, 0, 100.0, False, 30.0, 30.0), CONFIG)
    Counted.looks = 0
    for now in range(20):
        first = requests.first()
        assert first is not None
        requests.sent(first, 10, now)
        assert [] == requests.expired(now)
        assert [] == requests.due_heartbeats(now)
        assert requests.next_due() is not None
    assert 500 > Counted.looks


def test_a_heartbeat_that_a_message_has_put_off_comes_after_its_whole_time() -> None:
    requests = PullRequests(ClientShares(1 << 30, 1))
    one = request(5, 100.0, 30.0)
    requests.add(one, CONFIG)
    requests.sent(one, 10, 20.0)
    assert [] == requests.due_heartbeats(30.0)
    assert 50.0 == requests.next_due()
    assert [one] == requests.due_heartbeats(50.0)


def test_times_of_requests_that_have_ended_are_forgotten() -> None:
    """A client pulls again and again, each time with a year to wait."""
    requests = PullRequests(ClientShares(1 << 30, 1))
    for _ in range(5_000):
        one = request(1, 3e7, 1e6)
        requests.add(one, CONFIG)
        requests.sent(one, 10, 0.0)
    assert 200 > len(requests._expiries._heap) + len(requests._heartbeats._heap)


@pytest.mark.parametrize(
    "body", [b'{"batch":1,"expires":1000000000,"idle_heartbeat":1}', b" " + b"1" * 20_000]
)
def test_a_request_that_would_keep_the_broker_busy_is_refused(body: bytes) -> None:
    assert BODY_BYTES_MAX < 20_000
    with pytest.raises(PullRefusedError, match="400 Bad Request"):
        parse_pull(body, b"r", CONFIG, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_requests_equal_their_model(seed: int) -> None:
    choose = random.Random(seed)
    requests, model = PullRequests(ClientShares(1 << 30, 1)), list[PullRequest]()
    now = 0.0
    for _ in range(400):
        now += choose.random()
        action = choose.random()
        if action < 0.4:
            expires = choose.choice([None, now + choose.random() * 20])
            one = request(choose.randint(1, 3), expires, choose.choice([0.0, 3.0]), is_no_wait=action < 0.1)
            one.heartbeat_at = now + one.heartbeat if one.heartbeat else None
            requests.add(one, CONFIG)
            model.append(one)
        elif action < 0.6 and model:
            assert requests.first() is model[0]
            one = model.pop(0)
            if not requests.sent(one, 1, now):
                model.append(one)
        elif action < 0.7 and model:
            requests.remove(one := choose.choice(model))
            model.remove(one)
        elif action < 0.85:
            gone = [each for each in model if each.expires is not None and each.expires <= now]
            assert set(gone) == set(requests.expired(now))
            model = [each for each in model if each not in gone]
        else:
            due = {each for each in model if each.heartbeat_at is not None and each.heartbeat_at <= now}
            assert due == set(requests.due_heartbeats(now))
        assert model == requests.all()
        assert [each for each in model if each.is_no_wait and each.expires is None] == sorted(
            requests.all_no_wait(), key=model.index
        )
        times = [each.expires for each in model] + [each.heartbeat_at for each in model]
        first = min((each for each in times if each is not None), default=None)
        found = requests.next_due()
        assert (first is None) == (found is None)
        assert first is None or found is None or found <= first
    assert len(model) == len(requests.clear())
    assert requests.first() is None


def test_clients_share_what_may_wait_at_all_consumers() -> None:
    """Each consumer bounds its own requests, but a client may have a thousand consumers."""
    shares = ClientShares(100 * request().memory, 4)
    consumers = [PullRequests(shares) for _ in range(50)]

    def pull(client: str, count: int) -> int:
        """Let requests wait until one is refused; return how many wait."""
        for number in range(count):
            one = request()
            one.client = client
            try:
                consumers[number % 50].add(one, CONFIG)
            except NoRoomError:
                return number
        return count

    assert 20 == pull("one", 100)
    assert 16 == pull("two", 100)
    # What others have meanwhile is not the first client's again.
    consumers[0].remove(consumers[0].all()[0])
    assert 0 == pull("one", 100)
    for each in consumers:
        each.clear()
    assert 0 == shares.limit.used
    assert 20 == pull("three", 100)


def test_few_requests_end_in_one_turn() -> None:
    """2,000 requests with the same end were answered in one turn."""
    requests = PullRequests(ClientShares(1 << 30, 1))
    for _ in range(300):
        requests.add(request(1, 10.0, 5.0), CONFIG)
    assert ENDED_AT_ONCE == len(requests.due_heartbeats(5.0))
    assert 5.0 == requests.next_due()
    counts = []
    while requests:
        counts.append(len(requests.expired(10.0)))
    assert [128, 128, 44] == counts
