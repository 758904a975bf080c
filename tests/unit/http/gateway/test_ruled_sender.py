"""What rules do with the requests of webhooks; the receiver is a pool that answers 200."""

import asyncio
import random

import pytest

from kalda.clients.values import ConsumerRecord
from kalda.common.metrics import Metrics
from kalda.common.overriding import override
from kalda.http.gateway.rules.ruled import RuleCounts
from kalda.http.gateway.rules.rules import Rules
from kalda.http.gateway.streams.recent_records import BytesRecord
from kalda.http.gateway.webhooks.ruled_sender import RuledSender
from kalda.http.gateway.webhooks.sender import Attempt
from kalda.http.gateway.webhooks.subscription import read_subscription
from kalda.net.metrics_text import render
from kalda.records.batch import TimestampType
from tests.virtual_time import run_virtual

HOOK = read_subscription("h", {"topic": "orders", "url": "https://example.com/", "timeout_ms": 700}, "User:a")
RECORD: BytesRecord = ConsumerRecord("orders", 0, 7, 0, TimestampType.CREATE_TIME, b"k", b"v", (), 1, 1, None)


class CountedSender(RuledSender):
    """Takes every record, and counts what the receiver got."""

    def __init__(self, text: str) -> None:
        self.metrics = Metrics()
        rules = Rules.parse(text, random.Random(1))
        super().__init__((), 1, rules, RuleCounts(self.metrics))
        self.received = 0

    @override
    async def _request(self, url: str, headers: dict[str, str], body: bytes, timeout_s: float) -> Attempt:
        self.received += 1
        return Attempt(True, status=200)


@pytest.mark.parametrize(
    ("faults", "received", "attempt", "seconds"),
    [
        ("", 1, Attempt(True, status=200), 0.0),
        ("fetch:delay=2s", 1, Attempt(True, status=200), 2.0),
        ("fetch:throttle=3s", 0, Attempt(False, "rule r throttles the request", retry_after_s=3.0), 0.0),
        ("fetch:drop", 0, Attempt(False, "rule r closes the connection"), 0.0),
        ("fetch:lose", 1, Attempt(False, "rule r loses the response"), 0.0),
        ("fetch:hang", 0, Attempt(False, "rule r: no response within 700 ms"), 0.7),
    ],
)
def test_faults_apply_to_attempts(faults: str, received: int, attempt: Attempt, seconds: float) -> None:
    async def main() -> None:
        sender = CountedSender(f"rules: [{{name: r, match: {{kind: webhook}}, faults: '{faults}'}}]")
        loop = asyncio.get_running_loop()
        began = loop.time()

        assert attempt == await sender.send(HOOK, RECORD)

        assert received == sender.received
        assert seconds == pytest.approx(loop.time() - began)
        assert f'status="{attempt.status}"'.encode() in render(sender.metrics)
        await sender.close()

    run_virtual(main())


def test_errors_are_failed_attempts_before_or_after_the_receiver_has_the_record() -> None:
    async def main() -> None:
        sender = CountedSender("rules: [{faults: 'fetch:NOT_LEADER*1; fetch:error-after=NOT_LEADER*1'}]")

        attempts = [await sender.send(HOOK, RECORD) for _ in range(3)]

        assert [False, False, True] == [each.is_taken for each in attempts]
        assert 2 == sender.received
        await sender.close()

    run_virtual(main())


def test_a_rate_limit_holds_requests_back() -> None:
    """A record above the rate waits; it is no failure, which would make it a dead letter in the end."""

    async def main() -> None:
        sender = CountedSender("rules: [{rate_limit: {requests: 2, burst: 1}}]")
        loop = asyncio.get_running_loop()
        began = loop.time()

        attempts = [await sender.send(HOOK, RECORD) for _ in range(3)]

        assert [True] * 3 == [each.is_taken for each in attempts]
        assert 1.0 == pytest.approx(loop.time() - began)
        await sender.close()

    run_virtual(main())


def test_records_without_a_rule_are_sent() -> None:
    async def main() -> None:
        sender = CountedSender("rules: [{match: {principal: 'User:b'}, faults: 'fetch:drop'}]")

        assert (await sender.send(HOOK, RECORD)).is_taken
        await sender.close()

    run_virtual(main())
