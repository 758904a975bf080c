"""Describes topics that were created a moment ago, by this process or by another one."""

import asyncio
from typing import Final

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.topics import TopicDescription
from kalda.clients.errors import UnknownTopicOrPartitionError
from kalda.common.backoff import ExponentialBackoff
from kalda.runtime.system.random import SYSTEM_RANDOM

TRIES_MAX: Final = 20
"""Some 15 seconds, in which each broker that runs knows a new topic."""


async def describe_created(admin: AsyncAdmin, topic: str, timeout_ms: int | None = None) -> TopicDescription:
    """Describe a topic that exists; brokers that its creation has not reached yet are asked again.

    Raises:
        UnknownTopicOrPartitionError: it does not appear.
        ClientError: the cluster refuses, or cannot be reached in time.
    """
    backoff = ExponentialBackoff(50, 1_000, SYSTEM_RANDOM.uniform)
    failures = 0
    while True:
        try:
            return (await admin.describe_topics([topic], timeout_ms=timeout_ms))[topic]
        except UnknownTopicOrPartitionError:
            failures += 1
            if failures > TRIES_MAX:
                raise
            await asyncio.sleep(backoff.seconds(failures))
