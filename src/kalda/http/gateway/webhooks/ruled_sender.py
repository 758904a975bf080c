"""Applies rules to what webhooks send: rate limits hold requests back, faults make attempts fail."""

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from kalda.common.overriding import override
from kalda.faults.model import RequestEffect
from kalda.http.gateway.rules.ruled import RuleCounts, error_of_rule
from kalda.http.gateway.rules.rules import Decision, RequestKind, RequestOfCaller, Rules
from kalda.http.gateway.streams.recent_records import BytesRecord
from kalda.http.gateway.webhooks.addresses import IPNetwork
from kalda.http.gateway.webhooks.sender import Attempt, Sender
from kalda.http.gateway.webhooks.subscription import Subscription


class RuledSender(Sender):
    """A sender whose attempts the rules of the process apply to."""

    def __init__(
        self, allowed: Sequence[IPNetwork], requests_max: int, rules: Rules, counts: RuleCounts
    ) -> None:
        super().__init__(allowed, requests_max)
        self._rules: Final = rules
        self._counts: Final = counts

    @override
    async def send(self, subscription: Subscription, record: BytesRecord) -> Attempt:
        wanted = RequestOfCaller(RequestKind.WEBHOOK, (record.topic,), subscription.principal)
        loop = asyncio.get_running_loop()
        decision = self._rules.decide(wanted, loop.time())
        while decision is not None and decision.wait_s is not None:
            await asyncio.sleep(decision.wait_s)
            decision = self._rules.decide(wanted, loop.time())
        if decision is None:
            return await super().send(subscription, record)
        began = perf_counter()
        attempt = await self._apply(decision, subscription, record)
        self._counts.count(decision, attempt.status, began)
        return attempt

    async def _apply(self, decision: Decision, subscription: Subscription, record: BytesRecord) -> Attempt:
        fault = decision.fault
        if fault is None:
            return await super().send(subscription, record)
        seconds = (fault.milliseconds or 0) / 1000
        match fault.effect:
            case RequestEffect.ERROR:
                return Attempt(False, str(error_of_rule(decision)))
            case RequestEffect.DELAY:
                await asyncio.sleep(seconds)
                return await super().send(subscription, record)
            case RequestEffect.THROTTLE:
                return Attempt(False, f"rule {decision.rule} throttles the request", retry_after_s=seconds)
            case RequestEffect.HANG:
                await asyncio.sleep(subscription.timeout_ms / 1000)
                return Attempt(
                    False, f"rule {decision.rule}: no response within {subscription.timeout_ms} ms"
                )
            case RequestEffect.DROP:
                return Attempt(False, f"rule {decision.rule} closes the connection")
        # The receiver has the record; the attempt counts as failed, so that it gets the record again.
        await super().send(subscription, record)
        if fault.effect is RequestEffect.ERROR_AFTER:
            return Attempt(False, str(error_of_rule(decision)))
        return Attempt(False, f"rule {decision.rule} loses the response")
