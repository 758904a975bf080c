"""Members of a share group that accept, release at once or later, reject, renew, go silent and are killed.

The seed chooses the group's settings: how often a record is delivered, how long a member may keep it, the
back-off, dead letters, order within a key, delivery at a time. `DeliveryCheck` compares what members are
given; in the end every record has to be accepted, or given up for a reason that is stored, and has its
dead letter.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.clients.share.acknowledgements import GAP, AcknowledgeType
from kalda.clients.share.acquired_records import AcquiredRecords
from kalda.clients.share.share_fetcher import Decided
from kalda.clients.share.share_record import ShareRecord
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.share_acknowledge import GROUPS_DELAY
from kalda.simulation.checks.deliveries import DeliveryCheck, Grant, Violation
from kalda.simulation.checks.share_leaders import ShareLeaders
from kalda.simulation.checks.share_reasons import Letter, Reasons, read_letter, reasons_of
from kalda.simulation.machine import EPOCH_MS
from kalda.simulation.workloads.feeding import Extras, Feeder
from kalda.simulation.workloads.reading import read_all
from kalda.simulation.workloads.share_member import WatchedShareConsumer
from kalda.simulation.world import World

TOPIC: Final = "jobs"
GROUP: Final = "workers"
LETTERS: Final = "dlq.jobs"
_STATES: Final = "__share_group_state"
_PARTITIONS: Final = 3
_STATE_PARTITIONS: Final = 2
_MEMBERS: Final = 4
_KEYS: Final = 6
_DRAIN_SECONDS: Final = 150.0
"""Dead letters that could not be written are tried again every 30 s at last."""
_ANSWER_SECONDS: Final = 10.0
_DUE_HEADER: Final = "kalda.delivery.at"
_WAITS_MAX_MS: Final = 6_000
_DELAYS_S: Final = (None, None, 0, 0.1, 0.7, 3)
"""What members ask for that release a record; None leaves it to the group."""
_REFUSED: Final = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
"""After these answers nothing of a partition was acknowledged."""


class Options(NamedTuple):
    """The settings of the group."""

    limit: int
    lock_ms: int
    backoff_ms: int
    backoff_max_ms: int
    has_letters: bool
    copies: bool
    has_key_order: bool
    has_times: bool

    @classmethod
    def draw(cls, random: Random) -> "Options":
        """Draw the settings from a random source."""
        backoff_ms, backoff_max_ms = random.choice([(0, 0), (300, 0), (200, 1_600)])
        return cls(
            limit=random.choice([2, 3, 5]),
            lock_ms=random.choice([1_500, 3_000, 6_000]),
            backoff_ms=backoff_ms,
            backoff_max_ms=backoff_max_ms,
            has_letters=random.random() < 0.6,
            copies=random.random() < 0.5,
            has_key_order=random.random() < 0.4,
            has_times=random.random() < 0.3,
        )

    def settings(self) -> dict[str, str]:
        """Return the settings under the brokers' names."""
        return {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(self.limit),
            "share.record.lock.duration.ms": str(self.lock_ms),
            "kalda.share.redelivery.backoff.ms": str(self.backoff_ms),
            "kalda.share.redelivery.backoff.max.ms": str(self.backoff_max_ms),
            "kalda.share.key.order.enable": str(self.has_key_order).lower(),
            "kalda.share.delivery.at.enable": str(self.has_times).lower(),
            "errors.deadletterqueue.topic.name": LETTERS if self.has_letters else "",
            "errors.deadletterqueue.copy.record.enable": str(self.copies).lower(),
        }

    def wait_ms(self, deliveries: int) -> int:
        """Return the back-off after so many deliveries."""
        doubled: int = self.backoff_ms * 2 ** (deliveries - 1)
        return min(doubled, self.backoff_max_ms) if self.backoff_max_ms > self.backoff_ms else self.backoff_ms


class Sharers:
    """The members of one share group, and the producer that feeds them."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._options: Final = Options.draw(world.random("sharers"))
        self._feeder: Final = Feeder(world, TOPIC, _PARTITIONS, 0.4, extras=self._extras, linger_ms=200)
        self._deliveries: Final = DeliveryCheck(self._options.limit, self._options.wait_ms)
        self._leaders: Final = ShareLeaders(world.cluster, GROUP)
        self._runs = 0

    async def set_up(self) -> None:
        """Create the topics and the group's settings."""
        config = {"min.insync.replicas": "2"}
        letters = {**config, "errors.deadletterqueue.group.enable": "true"}
        async with AsyncAdmin(bootstrap_servers=self._world.bootstrap) as admin:
            await admin.create_topics(
                [NewTopic(TOPIC, _PARTITIONS, 3, config=config), NewTopic(LETTERS, 2, 3, config=letters)]
            )
            settings = [AlterConfigOp.set(*each) for each in self._options.settings().items()]
            await admin.incremental_alter_configs({ConfigResource.group(GROUP): settings})
        self._world.history.note(f"{self._options}")

    def start(self) -> None:
        """Start the members and the producer that feeds them."""
        self._world.start_client("jobs-feeder", self._feeder.run)
        for number in range(_MEMBERS):
            self._world.start_client(f"sharer-{number}", partial(self._belong, number))

    def _extras(self, random: Random) -> Extras:
        key = b"%d" % random.randrange(_KEYS) if random.random() < 0.8 else None
        if not self._options.has_times or random.random() < 0.7:
            return key, []
        due_ms = self._now_ms() + random.randrange(_WAITS_MAX_MS)
        return key, [(_DUE_HEADER, b"%d" % (EPOCH_MS + due_ms))]

    # Members.

    async def _belong(self, number: int) -> None:
        name = f"sharer-{number}"
        while not self._world.is_stopping:
            self._runs += 1
            random = self._world.random(f"{name}.{self._runs}")
            try:
                # Those that stay for a moment leave while others work on records.
                seconds = random.uniform(0.5, 4) if random.random() < 0.3 else random.uniform(4, 30)
                await self._be_member(name, seconds, random)
            except ClientError as error:
                self._world.history.note(f"{name} leaves after {error!r:.160}")
            await asyncio.sleep(random.random() * 2)

    def _consumer(self, name: str, **options: Any) -> WatchedShareConsumer:
        return WatchedShareConsumer(
            self,
            TOPIC,
            bootstrap_servers=self._world.bootstrap,
            client_id=name,
            group_id=GROUP,
            share_acknowledgement_mode="explicit",
            fetch_max_wait_ms=500,
            request_timeout_ms=4_000,
            max_poll_interval_ms=9_000,
            **options,
        )

    async def _be_member(self, name: str, seconds: float, random: Random) -> None:
        consumer = self._consumer(
            name,
            share_acquire_mode=random.choice(["batch_optimized", "record_limit"]),
            max_poll_records=random.randrange(1, 12),
        )
        end = self._world.now + seconds
        is_slow = random.random() < 0.4
        renewed: list[ShareRecord[bytes, bytes]] = []
        async with consumer:
            while self._world.now < end and not self._world.is_stopping:
                records = [*renewed, *await self._poll(consumer)]
                renewed.clear()
                if records and random.random() < 0.08:
                    # At times longer than the locks last.
                    await self._linger(random)
                elif records and is_slow:
                    await asyncio.sleep(random.uniform(0.1, 0.7) * self._options.lock_ms / 1000)
                for record in records:
                    kind = _decision(random)
                    delay_s = random.choice(_DELAYS_S) if kind == AcknowledgeType.RELEASE else None
                    reason = _reason(record.offset) if kind == AcknowledgeType.REJECT else None
                    consumer.acknowledge(record, kind, delay_s=delay_s, reason=reason)
                    if kind == AcknowledgeType.RENEW:
                        renewed.append(record)
                if records and random.random() < 0.4:
                    await consumer.commit(timeout_s=_ANSWER_SECONDS)
                await asyncio.sleep(random.random() * 0.3)

    async def _linger(self, random: Random) -> None:
        seconds = random.uniform(0.5, 2.0) * self._options.lock_ms / 1000
        if random.random() < 0.3:
            await self._world.stand_still(seconds)
        else:
            await asyncio.sleep(seconds)

    async def _poll(self, consumer: WatchedShareConsumer) -> list[ShareRecord[bytes, bytes]]:
        records = await consumer.poll(0.5)
        self._report(self._deliveries.taken_away(self._now_ms()))
        for record in records:
            self._handed_out(consumer.member_id, record)
        return records

    def _handed_out(self, member: str, record: ShareRecord[bytes, bytes]) -> None:
        place = record.partition, record.offset
        if self._options.has_key_order and record.key is not None:
            self._report(self._deliveries.handed_out(member, place, record.key, self._leaders.is_done))
        due = dict(record.headers).get(_DUE_HEADER) if self._options.has_times else None
        if due is not None and not self._leaders.has_any_clock_jumped:
            early_ms = int(due) - EPOCH_MS - self._now_ms()
            if early_ms > 0:
                text = f"{place} was delivered to {member} {early_ms} ms before its time"
                self._report([Violation("no record before its time", text)])

    # What members report.

    def acquired(self, member: str, acquired: AcquiredRecords) -> None:
        """Note the records that a response delivered."""
        now_ms, number = self._now_ms(), acquired.source.partition.partition
        term = self._leaders.term(acquired.node, acquired.source, member)
        for first, last, count in acquired.ranges:
            for offset in range(first, last + 1):
                grant: Grant | None = None if term is None else term.grant(offset)
                self._report(self._deliveries.acquired(member, (number, offset), count, grant, now_ms))
        self._report(self._deliveries.taken_away(now_ms))

    def sent(self, member: str, decided: Sequence[Decided]) -> None:
        """Note acknowledgements that were sent."""
        now_ms = self._now_ms()
        for acquired, acknowledgements in decided:
            number = acquired.source.partition.partition
            users = set(acknowledgements.offsets)
            for first, last, kind, delay_ms, _ in acknowledgements.ranges:
                for offset in range(first, last + 1):
                    self._deliveries.sent(
                        member,
                        (number, offset),
                        kind,
                        now_ms,
                        delay_ms=None if delay_ms == GROUPS_DELAY else delay_ms,
                        is_answered=offset in users,
                    )
                    if kind == GAP:
                        self._report(self._gap(member, (number, offset)))

    def answered(
        self, member: str, partition: TopicPartition, offsets: Sequence[int], error: ClientError | None
    ) -> None:
        """Note the outcome of acknowledgements."""
        epoch = self._leaders.newest_epoch(partition) if error is None else 0
        is_refused = isinstance(error, BrokerResponseError) and error.code in _REFUSED
        for offset in offsets:
            found = self._deliveries.answered(
                member,
                (partition.partition, offset),
                is_stored=error is None,
                is_refused=is_refused,
                epoch=epoch,
                forgotten_by=self._leaders.forgotten_by,
            )
            self._report(found)

    def _gap(self, member: str, place: tuple[int, int]) -> list[Violation]:
        if place not in self._feeder.acknowledged:
            return []
        return [Violation("records are no gaps", f"{member} found no record at {place}")]

    def _report(self, found: Sequence[Violation]) -> None:
        for each in found:
            self._world.history.violate(*each)

    def _now_ms(self) -> int:
        return int(self._world.now * 1000)

    # The end.

    async def check(self) -> None:
        """Accept what is left; every record has to be accepted, or given up for a stored reason."""
        if not await self._drain():
            return
        jobs = await self._read(TOPIC, _PARTITIONS)
        self._check_sent(jobs)
        reasons = reasons_of(await self._read(_STATES, _STATE_PARTITIONS), GROUP)
        letters = [read_letter(each) for each in (await self._read(LETTERS, 2)).values()]
        self._check_letters(letters, jobs)
        self._check_ends(jobs, reasons, letters)
        records = self._deliveries.records.values()
        deliveries = sum(each.deliveries for each in records)
        accepted = sum(each.accepted_epoch >= 0 for each in records)
        self._world.history.note(
            f"{len(jobs)} jobs, {deliveries} deliveries to {self._runs} members, {accepted} accepted, "
            f"{len(letters)} letters"
        )

    async def _drain(self) -> bool:
        end = self._world.now + _DRAIN_SECONDS
        lags: dict[TopicPartition, int | None] = {}
        async with (
            AsyncAdmin(bootstrap_servers=self._world.bootstrap) as admin,
            self._consumer("sharer-end") as consumer,
        ):
            while self._world.now < end:
                for record in await self._poll(consumer):
                    consumer.acknowledge(record)
                await consumer.commit(timeout_s=_ANSWER_SECONDS)
                try:
                    found = (await admin.list_share_group_offsets([GROUP]))[GROUP]
                    lags = {each: None if at is None else at.lag for each, at in found.items()}
                    if len(lags) < _PARTITIONS or any(lags.values()):
                        continue
                    async with asyncio.timeout(end - self._world.now):
                        if await self._is_empty(lags):
                            return True
                except (ClientError, TimeoutError):
                    continue
        self._world.history.violate(
            "share groups end", f"after {_DRAIN_SECONDS:g} s the group lags by {lags}"
        )
        return False

    async def _is_empty(self, lags: dict[TopicPartition, int | None]) -> bool:
        """Return whether the partitions without a lag have no records: a group begins with the first."""
        unknown = {each.partition for each, lag in lags.items() if lag is None}
        return not unknown or unknown.isdisjoint(
            partition for partition, _ in await self._read(TOPIC, _PARTITIONS)
        )

    async def _read(self, topic: str, partitions: int) -> dict[tuple[int, int], Any]:
        return await read_all(
            self._world.bootstrap, [TopicPartition(topic, each) for each in range(partitions)]
        )

    def _check_sent(self, jobs: dict[tuple[int, int], Any]) -> None:
        values = {each.value for each in jobs.values()}
        for place, value in self._feeder.acknowledged.items():
            if value not in values:
                self._world.history.violate("no record is lost", f"{value!r} at {place} is not in the log")

    def _check_letters(self, letters: Sequence[Letter], jobs: dict[tuple[int, int], Any]) -> None:
        violate = self._world.history.violate
        for letter in letters:
            job = jobs.get(letter.place)
            if letter.topic != TOPIC or letter.group != GROUP or job is None:
                violate("letters name their origin", f"{letter} is of no job")
                continue
            copied = (job.key, job.value) if self._options.copies else (None, None)
            if (letter.key, letter.value) != copied:
                violate("letters name their origin", f"{letter} is not a copy of {job.value!r}")
            record, limit = self._deliveries.of(letter.place), self._options.limit
            # A leader does not store the reason: the next one takes it from the count.
            is_right = record.rejections_sent > 0 if letter.is_rejected else letter.deliveries >= limit
            if not is_right or not 1 <= letter.deliveries <= limit:
                violate("letters have a reason", f"{letter}; {record}")
            # The next leader has none.
            if letter.reason and letter.reason != _reason(letter.place[1]):
                violate("letters have the reason of their rejection", f"{letter}")

    def _check_ends(
        self, jobs: dict[tuple[int, int], Any], reasons: Reasons, letters: Sequence[Letter]
    ) -> None:
        violate = self._world.history.violate
        counts = {letter.place: letter.deliveries for letter in letters}
        for place, job in jobs.items():
            record = self._deliveries.of(place)
            # A rejection may be stored although its leader had no answer and delivered the record again.
            has_unanswered = record.rejected_epoch < 0 < record.rejections_sent
            is_accepted = record.accepted_epoch >= 0 and has_unanswered
            is_given_up = (reasons.is_dead(place) and not is_accepted) or (
                record.rejected_epoch >= 0 and record.ends_sent == record.rejections_sent
            )
            if self._options.has_letters and is_given_up and place not in counts:
                violate("what is given up has a letter", f"{job.value!r} at {place} has none; {record}")
            if place in counts and record.rejected_count not in (0, counts[place]):
                violate("letters count deliveries", f"{counts[place]} for {place}; {record}")
            if record.accepted_epoch >= 0 or record.ends_sent or is_given_up or not reasons.is_complete:
                continue
            if not reasons.is_at_limit(place, self._options.limit):
                violate(
                    "every record is accepted or given up for a reason",
                    f"{job.value!r} at {place} is done, but nobody accepted or rejected it; {record}",
                )


def _reason(offset: int) -> str | None:
    """Return why members reject a record: neighbours have the same reason, and some have none."""
    return f"bad {offset // 4}" if offset % 8 < 6 else None


def _decision(random: Random) -> AcknowledgeType:
    choice = random.random()
    if choice < 0.66:
        return AcknowledgeType.ACCEPT
    if choice < 0.82:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.REJECT if choice < 0.92 else AcknowledgeType.RENEW
