"""The cluster's history on each engine: every change once, in order, with its author; the state at a time.

``KALDA_HISTORY_CHANGES=1000`` makes as many changes, ``KALDA_HISTORY_SEED=7`` draws others.
"""

import os
import random

from kalda.cluster.history.changes import Change, Origin
from tests.integration.zookeeper.client.engines import Engine
from tests.integration.zookeeper.client.recorded_cluster import SECRET, RecordedCluster

CHANGES = int(os.environ.get("KALDA_HISTORY_CHANGES", "200"))
SEED = int(os.environ.get("KALDA_HISTORY_SEED", "1"))
COPIES = max(10, CHANGES // 20)


async def test_random_changes_are_recorded_once_in_order_with_their_authors(engine: Engine) -> None:
    """Recorders are killed in the middle, and take over from each other."""
    draws = random.Random(SEED)
    cluster = RecordedCluster(engine, SEED)
    await cluster.start()
    await cluster.lead(0)
    await cluster.copy()
    begun = len(cluster.log.timeline().entries)
    for number in range(CHANGES):
        await cluster.step()
        if draws.random() < 0.05:
            await cluster.lead(draws.randrange(3))
        if number % (CHANGES // COPIES) == 0:
            await cluster.copy()
    await cluster.copy()
    await cluster.close()

    assert 0 == begun, "what was there before the history is no change"
    entries = [each.change for each in cluster.log.timeline().entries]
    noted = [each for each in entries if each.origin is Origin.WRITTEN]
    assert cluster.expected == [(each.path, each.is_deleted, each.author) for each in noted]
    states = [
        (each.path, each.value["leader_epoch"])
        for each in entries
        if each.path.endswith("/state") and isinstance(each.value, dict)
    ]
    assert cluster.elected == [each for each in states if each in cluster.elected]
    assert len(states) == len(set(states)), "a state is recorded once"
    assert COPIES <= len(cluster.copies)
    for time_ms, copied in cluster.copies.items():
        timeline = cluster.log.timeline(time_ms)
        assert copied == {path: each.value for path, each in timeline.state.items()} | {"/controller": None}
    assert SECRET.encode() not in b"".join(each.value or b"" for each in cluster.log.records)


async def test_changes_without_notes_are_seen_or_found_and_have_no_author(engine: Engine) -> None:
    """A program that leaves no notes writes while a recorder runs, and while none does."""
    cluster = RecordedCluster(engine, 2)
    await cluster.start()
    await cluster.lead(1)
    await cluster.wait_recorded()
    await cluster.foreign()
    await cluster.wait_recorded()
    await cluster.kill()
    for _ in range(6):
        await cluster.foreign()
    await cluster.lead(2)
    await cluster.wait_recorded()
    await cluster.close()

    entries: list[Change] = [each.change for each in cluster.log.timeline().entries]
    assert {None} == {each.author for each in entries}
    assert Origin.SEEN is entries[0].origin
    assert {Origin.FOUND} == {each.origin for each in entries[1:]}
    assert 1 <= len(entries[1:]) <= 3, "of several changes of a znode the last one is found"


async def test_a_cluster_that_had_no_history_begins_with_its_state(engine: Engine) -> None:
    """As after an upgrade: what is there is known from then on, and is no change."""
    cluster = RecordedCluster(engine, 3)
    await cluster.start()
    for _ in range(10):
        await cluster.step_unrecorded()
    await cluster.lead(0)
    await cluster.wait_recorded()
    await cluster.close()

    timeline = cluster.log.timeline()
    assert [] == timeline.entries
    assert any(path.endswith("/state") for path, _ in timeline.state.items())
    assert timeline.known_from_ms > 0
