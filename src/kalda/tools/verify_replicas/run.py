"""Runs the rounds of a verification: fetches from all brokers at the same time, then compares."""

import asyncio
import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from kalda.clients.network_client import NetworkClient
from kalda.command.command import Tool
from kalda.tools.verify_replicas.comparison import Mismatch
from kalda.tools.verify_replicas.replica_fetch import fetch_replica
from kalda.tools.verify_replicas.verification import Verification

_PAUSE_S: Final = 0.2
"""Between two rounds in which nothing new was compared: a follower may be some milliseconds behind."""


class VerificationRun:
    """The rounds of a run, and the lines that it prints on the way."""

    def __init__(
        self,
        tool: Tool,
        client: NetworkClient,
        verification: Verification,
        topic_ids: dict[str, UUID],
        fetch_size: int,
        max_wait_ms: int,
    ) -> None:
        self._tool: Final = tool
        self._client: Final = client
        self._verification: Final = verification
        self._topic_ids: Final = topic_ids
        self._fetch_size: Final = fetch_size
        self._max_wait_ms: Final = max_wait_ms

    async def verify(self, report_interval_s: float | None) -> None:
        """Fetch and compare until all is done; `report_interval_s` is None where there is an end."""
        verification = self._verification
        if report_interval_s is not None:
            await self._rounds(report_interval_s, lambda: None)
            return
        count = verification.partition_count
        with self._tool.output.progress("verify-replicas", count, "partitions") as progress:
            await self._rounds(None, lambda: progress.update(verification.done_count))

    async def _rounds(self, report_interval_s: float | None, show_progress: Callable[[], None]) -> None:
        verification = self._verification
        next_report_s = time.monotonic() + (report_interval_s or 0.0)
        while not verification.is_done:
            compared = verification.compared
            async with asyncio.TaskGroup() as tasks:
                for broker, offsets in verification.wanted().items():
                    tasks.create_task(
                        fetch_replica(
                            self._client,
                            broker,
                            offsets,
                            self._topic_ids,
                            verification,
                            fetch_size=self._fetch_size,
                            max_wait_ms=self._max_wait_ms,
                        ),
                        name=f"fetch from broker {broker}",
                    )
            for found in verification.end_round():
                kind = "mismatch" if isinstance(found, Mismatch) else "unverified"
                self._tool.output.item(
                    {
                        "kind": kind,
                        "topic": found.topic_partition.topic,
                        "partition": found.topic_partition.partition,
                        "message": str(found),
                    },
                    str(found),
                )
                self._tool.output.flush()
            show_progress()
            if report_interval_s is not None and time.monotonic() >= next_report_s:
                next_report_s += report_interval_s
                self._report()
            if compared == verification.compared and not verification.is_done:
                await asyncio.sleep(_PAUSE_S)

    def _report(self) -> None:
        """Print how far the verification is, in the words of Kafka's tool."""
        found = self._verification.max_lag
        if found is not None:
            partition, lag, offset = found
            self._tool.output.item(
                {
                    "kind": "report",
                    "maxLag": lag,
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "offset": offset,
                },
                f"max lag is {lag} for partition {partition} at offset {offset}",
            )
            self._tool.output.flush()
