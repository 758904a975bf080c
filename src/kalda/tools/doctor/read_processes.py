"""Reads the processes of brokers and compares their clocks with this machine's."""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kalda.common.api_keys import ApiKey
from kalda.inspection.doctor.snapshot import ClockReading, ClusterSnapshot, ProcessFacts
from kalda.tools.doctor.questions import PART_TIMEOUT_MS, Questions

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin


async def read_processes(
    admin: "AsyncAdmin", questions: Questions, cluster: ClusterSnapshot
) -> Mapping[int, ProcessFacts]:
    """Return the processes of the brokers that describe them; those of Apache Kafka do not.

    A broker reads its clock between the request and the response, so that half of the time between them
    bounds the error of the comparison.
    """

    async def read(broker_id: int) -> ProcessFacts | None:
        before, started = time.time(), time.monotonic()
        answer = await questions.ask_of_each(
            "process of broker",
            admin.describe_processes([broker_id], outcomes=True, timeout_ms=PART_TIMEOUT_MS),
        )
        half_s = (time.monotonic() - started) / 2
        found = answer.get(broker_id)
        if found is None:
            return None
        return ProcessFacts(
            version=found.version,
            is_compiled=found.is_compiled,
            clock=ClockReading(offset_ms=found.time_ms - (before + half_s) * 1000, error_ms=half_s * 1000),
            open_files=-1 if found.open_files is None else found.open_files,
            open_files_max=-1 if found.open_files_max is None else found.open_files_max,
        )

    asked = [
        each for each, served in cluster.versions.items() if ApiKey.DESCRIBE_PROCESS in served.api_versions
    ]
    found = await asyncio.gather(*map(read, asked))
    return {each: facts for each, facts in zip(asked, found, strict=True) if facts is not None}
