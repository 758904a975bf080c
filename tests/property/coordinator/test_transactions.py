"""Whatever producers, markers, time and failures do: what must be true of every transaction."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.common.errors import ErrorCode
from kalda.coordinator.transaction.transaction_metadata import NO_IDENTITY, Identity, TransactionMetadata
from kalda.coordinator.transaction.transaction_state import TransactionState
from tests.unit.coordinator.transaction_simulation import PARTITION, A, B, Simulation

PRODUCERS = (0, 1)
steps = st.one_of(
    st.tuples(st.just("begin"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("resume"), st.sampled_from(PRODUCERS)),
    st.tuples(st.just("add"), st.sampled_from(PRODUCERS), st.sampled_from((A, B))),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("retry"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("mark"), st.sampled_from((A, B))),
    st.tuples(st.just("wait")),
    st.tuples(st.just("fail over")),
    st.tuples(st.just("refuse"), st.booleans()),
)


class History:
    """Two producers of one transactional id, and what they were promised."""

    def __init__(self, version: int) -> None:
        self.simulation = Simulation(version=version)
        self.identities = dict.fromkeys(PRODUCERS, NO_IDENTITY)
        self.asked = dict.fromkeys(PRODUCERS, NO_IDENTITY)
        """Under which identity each asked for its last end."""
        self.outcomes: dict[Identity, set[bool]] = {}
        """What markers said, by the identity that they carry."""
        self.given: list[Identity] = []

    def run(self, step: tuple[object, ...]) -> None:
        kind, *rest = step
        getattr(self, f"do_{str(kind).replace(' ', '_')}")(*rest)
        self.simulation.loop.settle()
        for identity, is_commit, _, _ in self.simulation.markers.sent:
            self.outcomes.setdefault(identity, set()).add(is_commit)

    def do_begin(self, producer: int, keep: bool) -> None:
        answer = self.simulation.begin(two_phase=keep, keep=keep)
        if answer.code is ErrorCode.NONE:
            self._give(producer, answer.identity)

    def do_resume(self, producer: int) -> None:
        answer = self.simulation.begin(expected=self.identities[producer])
        if answer.code is ErrorCode.NONE:
            self.identities[producer] = answer.identity

    def do_add(self, producer: int, partition: object) -> None:
        self.simulation.add(self.identities[producer], partition)  # type: ignore[arg-type]  # drawn as such

    def do_end(self, producer: int, commit: bool) -> None:
        self.asked[producer] = self.identities[producer]
        self._end(producer, commit)

    def do_retry(self, producer: int, commit: bool) -> None:
        self._end(producer, commit)

    def _end(self, producer: int, commit: bool) -> None:
        answer = self.simulation.end(self.asked[producer], commit=commit)
        if answer.code is ErrorCode.NONE:
            self.identities[producer] = answer.identity

    def do_mark(self, partition: object) -> None:
        self.simulation.markers.write(partition)  # type: ignore[arg-type]  # drawn as such

    def do_wait(self) -> None:
        self.simulation.loop.advance(70_000)
        self.simulation.coordinator.abort_timed_out()

    def do_fail_over(self) -> None:
        self.simulation.log.append_error = None
        before = written_parts(self.simulation.state())
        self.simulation.fail_over()
        assert before == written_parts(self.simulation.state()), "loading gives what running gave"

    def do_refuse(self, is_refusing: bool) -> None:
        self.simulation.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS if is_refusing else None

    def _give(self, producer: int, identity: Identity) -> None:
        assert identity not in self.given, f"{identity} was given to two producers"
        self.given.append(identity)
        self.identities[producer] = identity


def written_parts(metadata: TransactionMetadata | None) -> TransactionMetadata | None:
    """A state without what its record has no field for."""
    return metadata and replace(metadata, last_producer_epoch=-1, previous_producer_id=-1)


@settings(max_examples=150, deadline=None)
@given(version=st.sampled_from((0, 2)), plan=st.lists(steps, max_size=40))
def test_every_transaction_has_one_outcome_and_ends(version: int, plan: list[tuple[object, ...]]) -> None:
    history = History(version)
    for step in plan:
        history.run(step)
    simulation = history.simulation
    states = [metadata for _, metadata in simulation.written() if metadata is not None]
    epochs: dict[int, int] = {}
    for metadata in states:
        assert metadata.producer_epoch >= epochs.get(metadata.producer_id, 0), "an epoch goes back"
        epochs[metadata.producer_id] = metadata.producer_epoch
    if version:
        # Under the first protocol several transactions share an identity.
        for identity, outcomes in history.outcomes.items():
            assert 1 == len(outcomes), f"{identity} was committed and aborted"
    for before, after in pairwise(states):
        if before.state is TransactionState.PREPARE_COMMIT:
            assert after.state is TransactionState.COMPLETE_COMMIT
        if before.state is TransactionState.PREPARE_ABORT:
            assert after.state is TransactionState.COMPLETE_ABORT
    # Whatever was decided is completed once the log and the leaders are well again.
    simulation.log.append_error = None
    simulation.loop.advance(10_000)
    simulation.markers.write_all()
    simulation.loop.advance(10_000)
    state = simulation.state()
    assert state is None or not state.state.is_prepared
    assert simulation.log.high_watermark(PARTITION) == simulation.log.end_offset(PARTITION)
