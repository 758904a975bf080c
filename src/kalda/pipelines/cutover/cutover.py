"""Runs a cut-over: the phases that `machine` orders, over two clusters and a mirror between them.

One thread drives it; `stop` may be called from another one or from a signal handler. It copies by its own
`Mirror` of the flow's name, which fences another process that runs the same flow.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from kalda.clients.errors import ClientConfigError, ClientError, UnsupportedApiError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.backoff import jittered
from kalda.common.types import TopicPartition
from kalda.pipelines.cutover import fence as fences
from kalda.pipelines.cutover import groups as group_offsets
from kalda.pipelines.cutover.carry import KINDS as CARRIED_KINDS
from kalda.pipelines.cutover.carry import Carrier
from kalda.pipelines.cutover.checks import check_copies
from kalda.pipelines.cutover.clusters import (
    TIMESTAMP_CONFIGS,
    Side,
    both_begins,
    in_parallel,
    recorded_syncs,
)
from kalda.pipelines.cutover.compare import Comparison, DifferenceError
from kalda.pipelines.cutover.journal import (
    Cut,
    Fence,
    FenceMethod,
    Journal,
    JournalError,
    JournalFile,
    NotCarried,
    Phase,
    QuotaChange,
)
from kalda.pipelines.cutover.locate import How
from kalda.pipelines.cutover.machine import ENDS, Outcome, advance
from kalda.pipelines.cutover.offset_translation import OffsetTranslation
from kalda.pipelines.cutover.options import CutoverError, CutoverOptions
from kalda.pipelines.cutover.report import KINDS as LEFT_KINDS
from kalda.pipelines.cutover.report import left_behind, moved_offsets
from kalda.pipelines.mirror.mirror import Mirror, MirrorFencedError
from kalda.pipelines.mirror.policy import MirrorError, check_clusters
from kalda.records.errors import RecordsError
from kalda.runtime.system.random import SYSTEM_RANDOM

logger: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_POLL_S: Final = 0.05
_LOOK_S: Final = 30.0
_NOT_HELD_S: Final = 3.0
"""For how long records may go on to arrive, such as markers of transactions that end, behind a new fence."""
_LISTED: Final = 5
_PERMANENT: Final = (DifferenceError, MirrorError, ClientConfigError, UnsupportedApiError, JournalError)


class HeldError(CutoverError):
    """Writers are kept from the source, and the source cannot be asked to let them go."""


class _StoppedError(Exception):
    """The operator gives up."""


class _OverdueError(Exception):
    """Writers were held for long enough."""


class Cutover:
    """One cut-over; used in a ``with`` block, by one thread."""

    def __init__(
        self,
        options: CutoverOptions,
        file: JournalFile,
        say: Callable[[str], None],
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
        observe: Callable[[Journal], None] = lambda _: None,
    ) -> None:
        """Take the file of the journal, and what gets lines on the progress.

        Args:
            observe: called with each journal that was written; what it raises ends the cut-over as the end of
                the process would.
        """
        self._options: Final = options
        self._file: Final = file
        self._say: Final = say
        self._now_ms: Final = now_ms
        self._monotonic: Final = monotonic
        self._observe: Final = observe
        self._stop: Final = threading.Event()
        self._resources: Final = ExitStack()
        self._open_mirror: Mirror | None = None
        self._held_since: float | None = None
        """When this process first found writers held."""
        self._released_since: float | None = None
        """When it first failed to let them go."""
        self._last_error = ""
        self._steps: Final[Mapping[Phase, Callable[[Journal], Journal]]] = {
            Phase.CHECK: self._check,
            Phase.PREPARE: self._prepare,
            Phase.FOLLOW: self._follow,
            Phase.PLAN_FENCE: self._plan_fence,
            Phase.FENCE: self._put_up_fence,
            Phase.DRAIN: self._drain,
            Phase.GROUPS: self._carry_groups,
            Phase.VERIFY: self._verify,
            Phase.SETTLE: self._settle,
            Phase.RELEASE: self._release,
        }

    def __enter__(self) -> Self:
        options = self._options.mirror
        try:
            self._source = Side(options.source, options.group, self._resources)
            self._target = Side(options.target, options.group, self._resources)
            self._translation = OffsetTranslation(self._source, self._target, self._options)
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_mirror()
        self._resources.close()

    def stop(self) -> None:
        """Give up: let writers go on in the source, and end; callable from a signal handler."""
        self._stop.set()
        mirror = self._open_mirror
        if mirror is not None:
            mirror.stop()

    def run(self) -> Journal:
        """Go on from where the journal is, until clients can switch or the cut-over was given up.

        Raises:
            HeldError: it was given up, and writers are still held.
            JournalError: the journal is that of another cut-over.
            OSError: the journal cannot be written.
        """
        journal = self._file.read()
        if journal is not None and journal.flow != self._options.mirror.name:
            raise JournalError(f"{self._file.path} is of {journal.flow}, not of {self._options.mirror.name}")
        if journal is None or journal.phase is Phase.ABORTED:
            journal = self._new_journal()
            self._write(journal)
        elif journal.phase is Phase.SWITCHED:
            journal = self._catch_up(journal)
            self._write(journal)
        while journal.phase not in ENDS:
            journal = self._turn(journal)
        return journal

    def check(self) -> Journal:
        """Check whether the cut-over can be made, and list what it cannot carry; change nothing.

        Raises:
            CutoverError: it cannot be made.
            ClientError: a cluster cannot be reached.
        """
        journal = self._check(self._new_journal())
        topics = self._options.mirror.names.selected(self._source.admin.list_topics())
        return replace(journal, not_carried=tuple(left_behind(self._source.admin, topics)))

    def abort(self) -> Journal:
        """Give up the cut-over of the journal, and let writers go on in the source.

        Raises:
            CutoverError: there is none, or clients have switched already.
            HeldError: the source cannot be reached.
        """
        journal = self._file.read()
        if journal is None or journal.phase is Phase.ABORTED:
            raise CutoverError(f"there is nothing to give up: {self._file.path} has no cut-over under way")
        if journal.phase is Phase.SWITCHED:
            raise CutoverError(f"{journal.flow} was cut over already; --back brings clients back")
        if journal.phase is not Phase.RELEASE:
            journal = advance(journal, Outcome.STOPPED, self._now_ms(), "given up by the operator")
            self._write(journal)
        while journal.phase not in ENDS:
            journal = self._turn(journal)
        return journal

    def _new_journal(self) -> Journal:
        method, former = self._options.method, self._options.former
        return Journal(
            flow=self._options.mirror.name,
            source_id="",
            target_id="",
            is_back=former is not None,
            methods=tuple(FenceMethod) if method is None else (method,),
            former_fence=Fence() if former is None else former.fence,
        )

    def _turn(self, journal: Journal) -> Journal:
        """Do what the phase says; return the journal as it was written."""
        outcome, reason = Outcome.DONE, ""
        try:
            if journal.phase is not Phase.RELEASE:
                self._check_time(journal)
            journal = self._steps[journal.phase](journal)
        except _MovedError as error:
            outcome, reason = Outcome.MOVED, str(error)
        except _NotHeldError as error:
            outcome, reason = Outcome.NOT_HELD, str(error)
        except _StoppedError:
            outcome, reason = Outcome.STOPPED, "given up by the operator"
        except _OverdueError as error:
            outcome, reason = Outcome.FAILED, str(error)
        except HeldError:
            raise
        except MirrorFencedError as error:
            outcome, reason = Outcome.FAILED, str(error)
        except _PERMANENT as error:
            outcome, reason = Outcome.FAILED, str(error)
        except (ClientError, RecordsError, TimeoutError) as error:
            if not self._waits_after(journal, error):
                outcome, reason = Outcome.FAILED, str(error)
            else:
                return journal
        if outcome is not Outcome.DONE:
            self._say(f"{journal.flow}: {journal.phase}: {reason}")
        self._last_error = ""
        journal = advance(journal, outcome, self._now_ms(), reason)
        self._write(journal)
        return journal

    def _waits_after(self, journal: Journal, error: ClientError | RecordsError | TimeoutError) -> bool:
        """Wait before the phase is repeated; return False if repeating it cannot succeed.

        Raises:
            HeldError: writers cannot be let go.
        """
        self._close_mirror()
        is_repeated, self._last_error = str(error) == self._last_error, str(error)
        if journal.phase is Phase.RELEASE:
            if self._released_since is None:
                self._released_since = self._monotonic()
            if self._monotonic() - self._released_since > self._options.release_max_s:
                raise HeldError(
                    f"{journal.flow}: writers are still held in {self._options.mirror.names.source}; when it "
                    f"is back, use --abort: {error}"
                ) from error
        elif is_repeated and isinstance(error, ClientError) and not error.is_retriable:
            return False
        if not is_repeated:
            self._say(f"{journal.flow}: {journal.phase}: trying again: {error}")
        pause = jittered(_RETRY_S, SYSTEM_RANDOM)
        if journal.phase is Phase.RELEASE:
            time.sleep(pause)
        else:
            self._stop.wait(pause)
        return True

    def _write(self, journal: Journal) -> None:
        self._file.write(journal)
        self._observe(journal)

    def _check_time(self, journal: Journal) -> None:
        if self._stop.is_set():
            raise _StoppedError
        if journal.fence == Fence():
            return
        now = self._monotonic()
        if self._held_since is None:
            self._held_since = now
        if now - self._held_since > self._options.pause_max_s:
            raise _OverdueError(
                f"writers were held for {self._options.pause_max_s:.0f} s (--pause-max)"
                + (f"; {self._last_error}" if self._last_error else "")
            )

    def _pause(self, journal: Journal, seconds: float = _POLL_S) -> None:
        self._stop.wait(seconds)
        self._check_time(journal)

    # The phases.

    def _check(self, journal: Journal) -> Journal:
        options = self._options.mirror
        names = options.names
        source_id, target_id = self._source.cluster_id(), self._target.cluster_id()
        check_clusters(names, source_id, target_id)
        former = self._options.former
        if former is not None and (former.source_id, former.target_id) != (target_id, source_id):
            raise CutoverError(
                f"the way there was from {former.source_id} to {former.target_id}, and this would be from "
                f"{source_id} to {target_id}"
            )
        topics = names.selected(self._source.admin.list_topics())
        if not topics:
            raise CutoverError(f"{options.name} copies no topic: `topics` selects none of {names.source}")
        if former is None:
            check_copies(self._source, self._target, options, topics)
        methods = [
            each for each in journal.methods if fences.plan(self._source.admin, each, topics) is not None
        ]
        if not methods:
            raise CutoverError(
                f"writers of {names.source} cannot be held: it has "
                f"{' and '.join(f'no {each}s' for each in journal.methods)}; set up an authorizer or quotas"
            )
        return replace(journal, source_id=source_id, target_id=target_id, methods=tuple(methods), reason="")

    def _prepare(self, journal: Journal) -> Journal:
        names = self._options.mirror.names
        topics = names.selected(self._source.admin.list_topics())
        # Timestamps of copies are those of the originals; `_settle` sets what the source has.
        self._target.alter_topics(
            {
                topic: {name: None for name in settings if name.startswith(TIMESTAMP_CONFIGS)}
                for topic, settings in self._target.topic_settings(topics).items()
            }
        )
        if journal.former_fence.quotas:
            fences.put_up(
                self._target.admin,
                Fence(quotas=(self._exemption,)),
                lambda: self._pause(journal, self._options.step_s),
            )
        return self._with_accounts(journal, topics)

    @property
    def _exemption(self) -> QuotaChange:
        return fences.exemption(self._options.mirror.group)

    def _with_accounts(self, journal: Journal, topics: Iterable[str]) -> Journal:
        """Carry accounts, and name what no cut-over carries."""
        topics = set(topics)
        carrier = Carrier(self._source.admin, self._target.admin, self._options.passwords)
        groups = [each.group_id for each in self._source.admin.list_groups().all()]
        carried = carrier.carry(topics, groups, journal.fence)
        return replace(
            journal.without((*CARRIED_KINDS, *LEFT_KINDS)),
            carried={**journal.carried, **carried.counts},
            not_carried=(
                *journal.without((*CARRIED_KINDS, *LEFT_KINDS)).not_carried,
                *carried.not_carried,
                *left_behind(self._source.admin, topics),
            ),
        )

    def _follow(self, journal: Journal) -> Journal:
        """Copy until little is left, and compare what is there while writers still write."""
        looked: float | None = None
        while True:
            self._check_time(journal)
            mirror = self._mirror()
            if looked is None or self._monotonic() - looked > _LOOK_S:
                mirror.look_for_topics()
                looked = self._monotonic()
                self._check_refused(mirror)
            has_copied = mirror.copy_next()
            lag = mirror.statistics().lag
            self._say(f"{journal.flow}: follow: lag {lag:,}")
            if has_copied and lag > self._options.lag_max:
                continue
            before = self._monotonic()
            journal = self._compared(journal, self._pairs(journal, mirror))
            # Comparing takes long where much was copied, and the mirror falls behind meanwhile.
            if self._monotonic() - before < 1.0 and lag <= self._options.lag_max:
                break
        journal = self._with_accounts(journal, mirror.topics.ids)
        self._locate_ahead(journal, mirror)
        return journal

    def _plan_fence(self, journal: Journal) -> Journal:
        """Decide on the next method; the fences of former ones stay."""
        method, *others = journal.methods
        topics = list(self._mirror_topics())
        planned = fences.plan(self._source.admin, method, topics)
        if planned is None:
            raise CutoverError(f"{self._options.mirror.names.source} has no {method}s any more")
        return replace(journal, fence=journal.fence | planned, methods=tuple(others))

    def _put_up_fence(self, journal: Journal) -> Journal:
        fences.put_up(self._source.admin, journal.fence, lambda: self._pause(journal, self._options.step_s))
        partitions = list(self._mirror().topics.targets)
        began = still_since = self._monotonic()
        ends = self._source.ends(partitions)
        while self._monotonic() - still_since < self._options.still_s:
            self._pause(journal)
            self._mirror().copy_next()
            now = self._source.ends(partitions)
            if now != ends:
                moved = sorted(str(each) for each, end in now.items() if end != ends.get(each))
                ends, still_since = now, self._monotonic()
                if still_since - began > max(_NOT_HELD_S, 3 * self._options.still_s):
                    raise _NotHeldError(
                        f"records still arrive in {', '.join(moved[:_LISTED])}: writers are not held by "
                        f"{'quotas' if journal.fence.quotas else 'ACLs, which super users pass'}"
                    )
        return journal

    def _drain(self, journal: Journal) -> Journal:
        mirror = self._mirror()
        mirror.look_for_topics()
        self._check_refused(mirror)
        partitions = list(mirror.topics.targets)
        while True:
            while mirror.copy_next():
                self._check_time(journal)
            ends = self._source.ends(partitions)
            behind = [each for each in partitions if mirror.positions[each] < ends[each]]
            if not behind:
                return replace(journal, cuts=self._pairs(journal, mirror))
            stable = self._source.stable_ends(behind)
            if any(stable[each] < ends[each] for each in behind):
                waits = "open transactions: " + "; ".join(self._source.open_transactions(behind)[:_LISTED])
                if waits != self._last_error:
                    self._last_error = waits
                    self._say(f"{journal.flow}: drain: waiting for {waits}")
            self._pause(journal)

    def _carry_groups(self, journal: Journal) -> Journal:
        found = group_offsets.find_groups(self._source.admin, journal.cuts, self._options.mirror.groups)
        places = group_offsets.places_of(
            found.committed, self._translation.locator(journal.cuts, self._mirror().syncs)
        )
        for each in places:
            if each.how == How.DIFFERENT:
                raise CutoverError(
                    f"group {each.group} is at {each.source} of {each.partition}, and another record is at "
                    f"{each.target} in the target; another program may write to the copy"
                )
        refused = group_offsets.commit(self._target.admin, places)
        names = {each.name for each in refused}
        places = [each for each in places if each.group not in names]
        return replace(
            journal.without(group_offsets.KINDS),
            places=tuple(places),
            carried={**journal.carried, "groups": len({each.group for each in places})},
            not_carried=(
                *journal.without(group_offsets.KINDS).not_carried,
                *found.not_carried,
                *refused,
                *group_offsets.inexact(places),
            ),
        )

    def _verify(self, journal: Journal) -> Journal:
        journal = self._compared(journal, journal.cuts)
        if group_offsets.unlike(self._target.admin, journal.places):
            raise _MovedError("offsets in the target are not those that were committed")
        found = group_offsets.find_groups(self._source.admin, journal.cuts, self._options.mirror.groups)
        at = {(each.group, each.partition): each.source for each in journal.places}
        groups = {each.group for each in journal.places}
        moved = {
            group
            for group, offsets in found.committed.items()
            for partition, answer in offsets.items()
            if group in groups and at.get((group, partition)) != answer.offset
        }
        if moved - found.active:
            raise _MovedError(f"groups went on: {', '.join(sorted(moved)[:_LISTED])}")
        late = self._late(journal)
        if late:
            raise _MovedError(f"records arrived behind the cut: {', '.join(late[:_LISTED])}")
        return replace(journal, not_carried=(*journal.not_carried, *self._active(found)))

    def _settle(self, journal: Journal) -> Journal:
        topics = sorted({each.topic for each in journal.cuts})
        wanted = self._source.topic_settings(topics)
        refused = self._target.alter_topics(
            {
                topic: {name: value for name, value in settings.items() if name.startswith(TIMESTAMP_CONFIGS)}
                for topic, settings in wanted.items()
            }
        )
        there = self._target.topic_settings(topics)
        different = [
            NotCarried("topic setting", f"{topic} {name}={value}", refused.get(topic, "it is the cluster's"))
            for topic, settings in sorted(wanted.items())
            for name, value in sorted(settings.items())
            if there.get(topic, {}).get(name) != value
        ]
        if journal.former_fence != Fence():
            fences.take_down(self._target.admin, journal.former_fence)
            if journal.former_fence.quotas:
                fences.take_down(self._target.admin, Fence(quotas=(self._exemption,)))
        quotas = Carrier(self._source.admin, self._target.admin, {}).carry_quotas(journal.fence)
        kinds = ("topic setting", "offset outside", "quota")
        return replace(
            journal,
            carried={
                **journal.carried,
                **quotas.counts,
                "topics": len(topics),
                "partitions": len(journal.cuts),
            },
            not_carried=(
                *journal.without(kinds).not_carried,
                *different,
                *quotas.not_carried,
                *moved_offsets(self._translation.runs(self._mirror().syncs), journal.cuts),
            ),
        )

    def _catch_up(self, journal: Journal) -> Journal:
        """Carry what groups have committed in the source since the cut, and name records that came since.

        A group that went on in the target keeps what it has there.
        """
        options = self._options.mirror
        ids = self._source.topic_ids({each.topic for each in journal.cuts})
        syncs = recorded_syncs(options.target, options.name, ids)
        found = group_offsets.find_groups(self._source.admin, journal.cuts, options.groups)
        known = {(each.group, each.partition): each for each in journal.places}
        later: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for group, offsets in found.committed.items():
            for partition, answer in offsets.items():
                place = known.get((group, partition))
                if place is None or place.source != answer.offset:
                    later.setdefault(group, {})[partition] = answer
        there = self._target.admin.list_consumer_group_offsets(sorted(later)) if later else {}
        for group in list(later):
            before = {each.partition: each.target for each in journal.places if each.group == group}
            now = {each: answer.offset for each, answer in there[group].items() if answer is not None}
            if any(now.get(each) != offset for each, offset in before.items()):
                del later[group]
        places = group_offsets.places_of(later, self._translation.locator(journal.cuts, syncs))
        refused = group_offsets.commit(self._target.admin, places)
        names = {each.name for each in refused}
        for each in places:
            if each.group not in names:
                known[each.group, each.partition] = each
        late = [
            NotCarried("late record", each, "records were written to the source behind the cut")
            for each in self._late(journal)
        ]
        self._say(f"{journal.flow}: {len(later.keys() - names)} groups carried again")
        kinds = (*group_offsets.KINDS, "late record")
        return replace(
            journal.without(kinds),
            places=tuple(known.values()),
            not_carried=(
                *journal.without(kinds).not_carried,
                *found.not_carried,
                *refused,
                *group_offsets.inexact(known.values()),
                *self._active(found),
                *late,
            ),
        )

    def _active(self, found: group_offsets.FoundGroups) -> list[NotCarried]:
        return [
            NotCarried(
                "group",
                each,
                "it has members in the source; what they commit from now on is carried when the command is "
                "run again without them",
            )
            for each in sorted(found.active & found.committed.keys())
        ]

    def _release(self, journal: Journal) -> Journal:
        fences.take_down(self._source.admin, journal.fence)
        self._close_mirror()
        return replace(journal, fence=Fence())

    # What phases share.

    def _mirror(self) -> Mirror:
        """Return the mirror; one that is new has looked for topics."""
        if self._open_mirror is None:
            mirror = Mirror(self._options.mirror).__enter__()
            self._open_mirror = mirror
            mirror.look_for_topics()
        return self._open_mirror

    def _close_mirror(self) -> None:
        mirror, self._open_mirror = self._open_mirror, None
        if mirror is not None:
            mirror.abandon()

    def _mirror_topics(self) -> Iterable[str]:
        return self._mirror().topics.ids

    def _check_refused(self, mirror: Mirror) -> None:
        refused = mirror.topics.refused
        if refused:
            name, error = next(iter(refused.items()))
            if error.is_retriable:
                raise error
            raise CutoverError(f"{self._options.mirror.names.target} refuses topic {name}: {error}")

    def _pairs(self, journal: Journal, mirror: Mirror) -> dict[TopicPartition, Cut]:
        """Return what has the same records before it on both sides: all that the mirror has copied."""
        partitions = list(mirror.topics.targets)
        positions = dict(mirror.positions)
        while True:
            # The end of a transaction is written behind the answer to the mirror.
            ends = self._target.ends(partitions)
            if ends == self._target.stable_ends(partitions):
                return {each: Cut(positions[each], ends[each]) for each in partitions}
            self._pause(journal)

    def _compared(self, journal: Journal, cuts: Mapping[TopicPartition, Cut]) -> Journal:
        """Compare records up to pairs of offsets."""
        if not self._options.compares_records:
            return journal
        wanted = {each: cut for each, cut in cuts.items() if journal.compared.get(each) != cut}
        if not wanted:
            return journal
        comparison = Comparison(self._source.rows, self._target.rows, journal.compared)
        begins = both_begins(self._source, self._target, wanted)
        compacted = self._source.compacted_topics({each.topic for each in wanted})
        runs = self._translation.runs(self._mirror().syncs)

        def compare(partition: TopicPartition) -> int:
            return comparison.extend(
                partition,
                runs.get(partition, ()),
                begins[partition],
                wanted[partition],
                is_compacted=partition.topic in compacted,
            )

        records = sum(in_parallel(compare, wanted))
        passed_over = [
            NotCarried("not compared", str(each), reason) for each, reason in comparison.passed_over.items()
        ]
        known = {(each.kind, each.name) for each in passed_over}
        return replace(
            journal,
            compared=comparison.compared,
            records=journal.records + records,
            not_carried=(
                *(each for each in journal.not_carried if (each.kind, each.name) not in known),
                *passed_over,
            ),
        )

    def _locate_ahead(self, journal: Journal, mirror: Mirror) -> None:
        """Find the places of groups while writers still write, so that the pause need not wait for it."""
        pairs = self._pairs(journal, mirror)
        found = group_offsets.find_groups(self._source.admin, pairs, self._options.mirror.groups)
        group_offsets.places_of(found.committed, self._translation.locator(pairs, mirror.syncs))

    def _late(self, journal: Journal) -> list[str]:
        """Return the partitions of the source that have more than was cut over."""
        ends = self._source.ends(journal.cuts)
        return [str(each) for each, cut in sorted(journal.cuts.items()) if ends[each] != cut.source]


class _MovedError(Exception):
    """Records arrived, or groups went on, behind the cut."""


class _NotHeldError(Exception):
    """Records arrive in spite of the fence."""
