"""Damage in random places of a log: what is lost is known, nothing else is lost, and it can be put back."""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import hypothesis.strategies as st
from hypothesis import given, settings

from kalda.records.batch import iter_headers
from kalda.records.errors import RecordsError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation
from kalda.storage.missing_filler import GapFiller
from kalda.storage.unified_log import UnifiedLog
from tests.unit.storage.faulty_file_system import FaultyFileSystem, Node
from tests.unit.storage.log_fixtures import DIRECTORY, NOW_MS, Broker, append, batch, read_all

PATH: Final = f"{DIRECTORY}/orders-0"
CRC_FROM: Final = 17
"""Where in a batch the CRC begins to count; the base offset and the leader epoch lie before."""


def cut(files: FaultyFileSystem, stem: str, chance: random.Random) -> None:
    content = files.nodes[stem + ".log"].content
    del content[chance.randrange(len(content) + 1) :]


def cut_to_nothing(files: FaultyFileSystem, stem: str, _: random.Random) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        files.nodes[stem + suffix] = Node()


def junk_index(files: FaultyFileSystem, stem: str, chance: random.Random) -> None:
    files.nodes[stem + ".index"] = Node(chance.randbytes(64))


def lose_index(files: FaultyFileSystem, stem: str, chance: random.Random) -> None:
    files.nodes.pop(stem + chance.choice((".index", ".timeindex")), None)


def flip(files: FaultyFileSystem, stem: str, chance: random.Random) -> None:
    """Flip a bit that the CRC covers; a start notices it where it has another reason to read the segment."""
    content = files.nodes[stem + ".log"].content
    with suppress(RecordsError):
        batches = list(iter_headers(bytes(content)))
        if batches:
            position, header = chance.choice(batches)
            content[position + chance.randrange(CRC_FROM, header.size)] ^= 1 << chance.randrange(8)
    junk_index(files, stem, chance)


def append_junk(files: FaultyFileSystem, stem: str, chance: random.Random) -> None:
    files.nodes[stem + ".log"].content += chance.randbytes(chance.randrange(1, 200))


def lose_log(files: FaultyFileSystem, stem: str, _: random.Random) -> None:
    files.nodes.pop(stem + ".log", None)


def lose_segment(files: FaultyFileSystem, stem: str, _: random.Random) -> None:
    for path in [path for path in files.nodes if path.startswith(stem)]:
        del files.nodes[path]


Damage = Callable[[FaultyFileSystem, str, random.Random], None]
LOSSES: Final[tuple[Damage, ...]] = (lose_log, lose_segment)
ANY: Final[tuple[Damage, ...]] = (
    cut,
    cut_to_nothing,
    junk_index,
    lose_index,
    flip,
    append_junk,
    *LOSSES,
)


def filled(counts: list[int], segment_bytes: int, interval: int) -> Broker:
    broker = Broker(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval))
    number = 0
    for count in counts:
        append(broker.log, *(b"%d" % (number + each) for each in range(count)), timestamp=NOW_MS + number)
        number += count
    return broker


def all_bytes(log: UnifiedLog) -> bytes:
    return b"".join(segment.records.slice(0, segment.size).read() for segment in log.segments)


def fill(broker: Broker, source: UnifiedLog) -> None:
    """Put everything back that is missing, as a broker does that fetches it from another replica."""
    for gap in broker.log.missing.ranges:
        filler = GapFiller(broker.log, broker.manager.resources, gap)
        while filler.next_offset < gap.end:
            filler.append(source.read(filler.next_offset, 300, FetchIsolation.LOG_END).records.read())
        errors: list[Exception | None] = []
        filler.install(errors.append)
        assert [None] == errors


@settings(max_examples=150, deadline=None)
@given(
    counts=st.lists(st.integers(1, 3), min_size=4, max_size=30),
    segment_bytes=st.sampled_from([250, 600]),
    interval=st.sampled_from([0, 200]),
    damages=st.lists(st.tuples(st.integers(0, 50), st.sampled_from(ANY)), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    is_clean=st.booleans(),
)
def test_damage_costs_what_it_hit_and_no_offset_is_given_twice(
    counts: list[int],
    segment_bytes: int,
    interval: int,
    damages: list[tuple[int, Damage]],
    seed: int,
    is_clean: bool,
) -> None:
    original = filled(counts, segment_bytes, interval)
    written, end = read_all(original.log), original.log.log_end_offset
    bases = [segment.base_offset for segment in original.log.segments]
    if is_clean:
        files = original.file_system
        original.manager.close()
        source = Broker(original.config, files.crash()).log
        files = files.crash()
    else:
        original.manager.checkpoint_high_watermarks()
        files, source = original.file_system.crash(), original.log
    chance = random.Random(seed)
    for number, damage in damages:
        base = bases[number % len(bases)]
        stem = os.path.join(PATH, f"{base:020d}")
        # A log whose first segment is gone begins later, as retention would have it.
        if stem + ".log" in files.nodes and (base or damage not in LOSSES):
            damage(files, stem, chance)

    broker = Broker(original.config, files)
    log = broker.log
    assert (0, end, end) == (log.log_start_offset, log.log_end_offset, log.high_watermark)
    left = read_all(log)
    assert left == [record for record in written if not log.missing.holds(record[0])]
    assert len(left) + log.missing.count == len(written)

    broker = broker.stop() if chance.random() < 0.5 else broker.kill()
    assert (left, end) == (read_all(broker.log), broker.log.log_end_offset)
    fill(broker, source)
    assert written == read_all(broker.log)
    assert all_bytes(source) == all_bytes(broker.log)
    assert not broker.log.missing.ranges
    assert end == append(broker.log, b"next")
    again = broker.stop()
    assert [*written, (end, b"next")] == read_all(again.log)
    assert not again.log.missing.ranges
    assert end + 1 == again.log.append_as_leader(batch(b"x"), 0).first_offset
