"""A broker with two log directories in memory, and one partition that moves between them."""

import asyncio
import os
import re
import uuid

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_alter_log_dirs import ReplicaAlterLogDirs
from kalda.broker.replicas.replication_quota import RateQuota
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.runtime.background import Background
from kalda.runtime.clock import ManualClock
from kalda.storage.future_log_copy import FutureLogCopy
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from kalda.storage.unified_log import UnifiedLog
from tests.runtimes import rules_without_followers
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import NOW_MS, PARTITION

A, B = "/a", "/b"
TOPIC_ID = uuid.UUID(int=7)


class MovingBroker:
    """Hosts the partition in `A` at first; the manual clock stands still while a move is advanced."""

    def __init__(
        self,
        config: LogConfig | None = None,
        file_system: FaultyFileSystem | None = None,
        clock: ManualClock | None = None,
        executor: Background | None = None,
    ) -> None:
        self.config = config or LogConfig(segment_bytes=400, index_interval_bytes=0)
        self.file_system = file_system or FaultyFileSystem()
        self.clock = clock or ManualClock(NOW_MS)
        self.manager = LogManager([A, B], lambda _: self.config, self.clock, self.file_system, executor)
        self.manager.load()
        self.manager.resources.failures.listen(on_full=lambda _: None)
        self.hosted: Partition | None = Partition(
            PARTITION,
            TOPIC_ID,
            0,
            self.manager.get_or_create(PARTITION, TOPIC_ID),
            rules_without_followers(),
        )
        self.absence = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.repaired = False
        self.moved_from_full: list[Partition] = []
        self.moves = ReplicaAlterLogDirs(
            self.manager,
            self.clock,
            RateQuota(self.clock, sample_count=11, sample_seconds=1),
            1,
            find=self.find,
            absence_error=lambda _: self.absence,
            is_repaired=lambda _: self.repaired,
            on_moved_from_full=self.moved_from_full.append,
        )
        self.moves.begin(self.hosted)

    def find(self, name: TopicPartition) -> Partition | None:
        return self.hosted if name == PARTITION else None

    @property
    def log(self) -> UnifiedLog:
        assert self.hosted is not None
        return self.hosted.log

    @property
    def place(self) -> str:
        return os.path.dirname(self.log.directory)

    @property
    def future(self) -> UnifiedLog | None:
        return self.manager.futures.get(PARTITION)

    def alter(self, directory: str, name: TopicPartition = PARTITION) -> ErrorCode:
        return self.moves.alter({name: directory})[name]

    def advance(self) -> None:
        """Copy until the log is replaced or the move has to wait."""
        asyncio.run(self.moves.advance(PARTITION))

    def step(self) -> bool:
        """Copy the next records; return whether there were any."""
        assert self.future is not None
        copy = FutureLogCopy(self.manager.futures, self.log, self.future)
        records = copy.next_records()
        if records is None:
            return False
        copy.append(records.read())
        return True

    def stop(self) -> "MovingBroker":
        """Stop cleanly and start again."""
        self.manager.close()
        return MovingBroker(self.config, self.file_system.crash(), self.clock)

    def kill(self) -> "MovingBroker":
        """Be killed and start again."""
        return MovingBroker(self.config, self.file_system.crash(), self.clock)

    def cut_power(self) -> "MovingBroker":
        """Lose what was not synced and start again."""
        return MovingBroker(self.config, self.file_system.cut_power(), self.clock)

    def directories(self) -> list[str]:
        """The partition's directories, without the unique part of their names."""
        found = [path for path in self.file_system.directories if path.count("/") == 2]
        return sorted(re.sub(r"\.[0-9a-f]{32}-", "-", path) for path in found)
