"""Runs the periodic work on the logs of a broker: retention, flushes, deletions and checkpoints."""

import asyncio
from typing import Final

from kalda.broker.context.service_tasks import ServiceTasks
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.settings import BrokerConfig
from kalda.storage.log_manager import LogManager

_STEP_MS_MAX: Final = 1_000
"""The interval of steps that only look for work that is due: deferred deletions and ``flush.ms``."""


def run_log_maintenance(
    tasks: ServiceTasks, config: BrokerConfig, logs: LogManager, replicas: ReplicaManager
) -> None:
    """Start the periodic work on the logs and the retries of roles that a disk refused."""

    async def apply_retention() -> None:
        while not logs.retention_step():  # noqa: ASYNC110
            # Requests are served between two steps of a pass over thousands of logs.
            await asyncio.sleep(0)

    async def expire_producers() -> None:
        while not logs.producer_expiration_step():  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def retry_refused() -> None:
        while replicas.roles.retry_refused():  # noqa: ASYNC110
            await asyncio.sleep(0)

    for name, interval_ms, step in (
        ("log retention", config.log_retention_check_interval_ms, apply_retention),
        ("producer expiration", config.producer_id_expiration_check_interval_ms, expire_producers),
        ("log flush", min(config.log_flush_scheduler_interval_ms, _STEP_MS_MAX), logs.flush_step),
        ("log deletion", _STEP_MS_MAX, logs.deletion_step),
        ("refused replicas", _STEP_MS_MAX, retry_refused),
        (
            "recovery points",
            config.log_flush_offset_checkpoint_interval_ms,
            logs.checkpoint_recovery_points,
        ),
        (
            "log start offsets",
            config.log_flush_start_offset_checkpoint_interval_ms,
            logs.checkpoint_log_start_offsets,
        ),
        (
            "high watermarks",
            config.replica_high_watermark_checkpoint_interval_ms,
            logs.checkpoint_high_watermarks,
        ),
    ):
        tasks.every(name, interval_ms, step)
