"""Runtimes for tests: every port may be replaced, and what is not is under the test's control."""

import random

from kalda.broker.replicas.in_sync import ReplicationRules
from kalda.runtime.background import Background, InlineExecutor
from kalda.runtime.clock import Clock, ManualClock
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.network import Network
from kalda.runtime.random import Random
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.runtime.system.network import SYSTEM_NETWORK


def seeded(seed: int = 0) -> Random:
    """Return randomness that repeats itself."""
    return random.Random(seed)


def runtime_with(
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    network: Network = SYSTEM_NETWORK,
    file_system: FileSystem | None = None,
    background: Background | None = None,
) -> Runtime:
    """Return a runtime with a clock that stands still, a seed and no threads, on this machine's files."""
    return Runtime(
        clock=ManualClock() if clock is None else clock,
        random=seeded() if random is None else random,
        network=network,
        file_system=OsFileSystem() if file_system is None else file_system,
        background=InlineExecutor() if background is None else background,
    )


def rules_without_followers() -> ReplicationRules:
    """Return the rules of a partition that never has followers."""
    return ReplicationRules(ManualClock(), 30.0, lambda _: False)
