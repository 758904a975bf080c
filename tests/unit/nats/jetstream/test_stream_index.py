"""The index of a stream against a model: a list of its messages."""

import random
from array import array
from typing import Any

import pytest

from kalda.common.steps import Steps, result_of
from kalda.nats.jetstream import stream_index
from kalda.nats.jetstream.stream_index import REMEMBERED_MAX, StreamIndex, SubjectFilter

SUBJECTS = [b"a.1", b"a.2", b"b.1", b"c"]


def filled(*subjects: bytes, per_subject: int = -1) -> StreamIndex:
    index = StreamIndex(1, per_subject)
    for sequence, subject in enumerate(subjects, 1):
        for old in list(index.append(sequence, subject, 10, 1000 + sequence)):
            index.remove(old)
    return index


def test_a_new_stream_is_empty() -> None:
    index = StreamIndex()
    assert (0, 0, 1, 1) == (index.count, index.bytes, index.first, index.next)


def test_the_first_message_moves_with_removals() -> None:
    index = filled(b"a", b"b", b"c")
    index.remove(2)
    assert (1, 2, 20) == (index.first, index.count, index.bytes)
    index.remove(1)
    assert (3, 1, 10) == (index.first, index.count, index.bytes)
    index.remove(3)
    assert (4, 0, 4) == (index.first, index.count, index.next)
    assert not index.remove(3)


def last_of(index: StreamIndex, subject: bytes) -> int:
    entry = index.subjects[subject]
    result_of(index.settle_lasts([entry]))
    return entry.last


def test_the_last_message_of_a_subject_is_found_again_when_it_is_removed() -> None:
    index = filled(b"a", b"b", b"a", b"b", b"a")
    index.remove(5)
    assert index.is_last_removed(b"a")
    assert 3 == last_of(index, b"a")
    assert not index.is_last_removed(b"a")
    index.remove(3)
    assert 1 == last_of(index, b"a")
    index.remove(1)
    assert b"a" not in index.subjects


@pytest.mark.parametrize("per_subject", [1, 2, 3])
def test_a_subject_keeps_its_last_messages(per_subject: int) -> None:
    index = filled(*([b"a", b"b"] * 5), per_subject=per_subject)
    assert [10 - 2 * per_subject + 1 + each for each in range(2 * per_subject)] == [
        each for each in range(1, 11) if index.has(each)
    ]


def test_limits_remove_from_the_front() -> None:
    index = filled(*[b"a"] * 10)
    for sequence in index.overdue(messages_max=6, bytes_max=-1, oldest_ms=None):
        index.remove(sequence)
    assert (5, 6) == (index.first, index.count)
    for sequence in index.overdue(messages_max=-1, bytes_max=35, oldest_ms=None):
        index.remove(sequence)
    assert 3 == index.count
    for sequence in index.overdue(messages_max=-1, bytes_max=-1, oldest_ms=1010):
        index.remove(sequence)
    assert (10, 1) == (index.first, index.count)


def test_sequences_can_be_left_out() -> None:
    index = filled(b"a")
    index.skip_to(5)
    index.append(5, b"b", 10, 1)
    assert ([1, 5], 1, 6) == ([each for each in range(9) if index.has(each)], index.first, index.next)
    assert 5 == index.next_match(SubjectFilter(["b"]), 1, 100)[0]


def test_a_search_ends_after_what_it_may_look_at() -> None:
    index = filled(*[b"a"] * 10, b"b")
    assert (None, 5) == index.next_match(SubjectFilter(["b"]), 2, 3)
    assert (11, 11) == index.next_match(SubjectFilter(["b"]), 5, 100)


def test_messages_are_found_by_time() -> None:
    index = filled(*[b"a"] * 5)
    assert [1, 3, 6] == [index.at_time(each) for each in (0, 1003, 9999)]


def test_numbers_of_subjects_are_used_again() -> None:
    """A filter remembers subjects by number, and must not take a new subject for an old one."""
    index = filled(b"a")
    filter_ = SubjectFilter(["a"])
    assert 1 == index.next_match(filter_, 1, 10)[0]
    index.remove(1)
    index.append(2, b"z", 1, 1)
    assert 1 == index.numbers_used
    assert index.next_match(filter_, 1, 10)[0] is None


def count_of(steps: Steps[object]) -> int:
    return sum(1 for _ in steps)


def test_searches_among_many_subjects_are_done_in_small_steps() -> None:
    """100,000 subjects took one turn of 0.4 s, in which no client of Kafka was served."""
    index = filled(*[b"a.%d" % each for each in range(6_400)])
    some = SubjectFilter(["*.1", "b.*"])
    assert 100 <= count_of(index.last_before(some, index.next))
    assert 100 <= count_of(index.lasts_before(some, index.next))
    assert 100 <= count_of(index.included(some))
    for sequence in range(2, 6_400):
        index.remove(sequence)
    assert 20 <= count_of(index.removed(1 << 20))
    assert list(range(2, 102)) == result_of(index.removed(100))


def test_what_is_not_replicated_yet_does_not_hide_the_value_before_it() -> None:
    """A key that was being put had no value for a moment."""
    index = filled(b"k.a", b"k.b", b"k.a", b"k.b")
    for patterns, end, expected in ((["k.a"], 3, 1), (["k.*"], 3, 2), (["k.a"], 1, None), (["k.*"], 4, 3)):
        assert expected == result_of(index.last_before(SubjectFilter(patterns), end))


def test_subjects_may_change_while_they_are_searched() -> None:
    index = filled(*[b"a.%d" % each for each in range(1_000)])
    steps = index.last_before(SubjectFilter(["a.*"]), index.next)
    next(steps)
    for sequence in range(1, 999):
        index.remove(sequence)
    index.append(1_001, b"new", 1, 1)
    assert result_of(steps) in (999, 1000)


def test_a_filter_of_everything_beside_another_includes_everything() -> None:
    assert SubjectFilter(["a", ">"]).includes(b"b")
    assert SubjectFilter(["a", "b.*", "*.c"]).includes(b"x.c")
    assert not SubjectFilter(["a", "b.*", "*.c"]).includes(b"x.d")


def test_names_of_subjects_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_index, "SUBJECT_BYTES_MAX", 10)
    index = filled(b"aaaa", b"bbbb")
    assert index.has_room(b"cc")
    assert index.has_room(b"bbbb")
    assert not index.has_room(b"ccc")
    index.remove(1)
    assert index.has_room(b"ccc")


@pytest.mark.parametrize("seed", range(20))
def test_an_index_equals_its_model(seed: int) -> None:
    choose = random.Random(seed)
    per_subject = choose.choice([-1, 1, 3])
    index, model = StreamIndex(1, per_subject), dict[int, bytes]()
    left_out: list[int] = []
    for number in range(1, 300):
        sequence = number
        if choose.random() < 0.1:
            left_out.append(sequence)
            index.skip_to(sequence + 1)
            continue
        if left_out and choose.random() < 0.1:
            sequence = left_out.pop(choose.randrange(len(left_out)))
        subject = choose.choice(SUBJECTS)
        add = index.append if sequence >= index.next else index.insert
        for old in list(add(sequence, subject, sequence, sequence)):
            index.remove(old)
        model[sequence] = subject
        model = dict(sorted(model.items()))
        same = [each for each, name in model.items() if name == subject]
        if per_subject > 0:
            for each in same[:-per_subject]:
                del model[each]
        if choose.random() < 0.3 and model:
            gone = choose.choice(list(model))
            assert index.remove(gone)
            del model[gone]
        assert (len(model), sum(model)) == (index.count, index.bytes)
        assert min(model, default=index.next) == index.first
        for name in SUBJECTS:
            entry = index.subjects.get(name)
            last = max((each for each, found in model.items() if found == name), default=0)
            if entry is not None and choose.random() < 0.5:
                result_of(index.settle_lasts([entry]))
            assert (last > 0) == (entry is not None)
            if entry is not None:
                assert last == entry.last or (entry.is_last_removed and last < entry.last)
    for patterns in ([], ["a.*"], ["c"], ["a.1", "b.>"]):
        filter_ = SubjectFilter(patterns)
        names = sorted({name for name in model.values() if filter_.includes(name)})
        assert names == [each.name for each in result_of(index.included(filter_))]
        for end in (index.next, index.next - 1, choose.randrange(1, 300)):
            wanted = [each for each, name in model.items() if each < end and name in names]
            assert max(wanted, default=None) == result_of(index.last_before(filter_, end))
        lasts = sorted(max(each for each, found in model.items() if found == name) for name in names)
        assert lasts == list(result_of(index.lasts_before(filter_, index.next)))
        found, at = [], 1
        while at < index.next:
            match, at = index.next_match(filter_, at, 7)
            if match is not None:
                found.append(match)
                at = match + 1
        assert [each for each, name in model.items() if filter_.includes(name)] == found


def test_a_filter_remembers_few_of_very_many_subjects() -> None:
    """A thousand consumers with filters would take 9 GB where a stream has a million subjects."""
    count = 2 * REMEMBERED_MAX
    index = filled(*[b"s.%d" % number for number in range(count)])
    filter_ = SubjectFilter([f"*.{count - 1}"])
    for _ in range(2):
        assert (count, count) == index.next_match(filter_, 1, 2 * count)
    assert (REMEMBERED_MAX, REMEMBERED_MAX) == (len(filter_._names), len(filter_._allowed))


class CountedArray(array):  # type: ignore[type-arg]  # not generic while it runs
    """Counts what is read of it, one by one or in pieces."""

    reads = 0

    def __getitem__(self, key: Any) -> Any:
        CountedArray.reads += 1 if isinstance(key, int) else len(range(*key.indices(len(self))))
        return super().__getitem__(key)


def test_a_message_is_removed_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last message of a subject was looked for in one turn, and the first one of the stream, in 64 MB."""
    index = filled(b"first", *[b"b"] * 100_000, b"a", b"b")
    for sequence in range(3, 100_002):
        index.remove(sequence)
    index._numbers = CountedArray("i", index._numbers)
    CountedArray.reads = 0
    index.remove(100_003)
    assert index.is_last_removed(b"b")
    assert 20 > CountedArray.reads
    steps = index.settle_lasts([index.subjects[b"b"]])
    reads = []
    for _ in steps:
        reads.append(CountedArray.reads)
        CountedArray.reads = 0
    assert 90 < len(reads)
    assert 1_100 > max(reads)
    assert 2 == last_of(index, b"b")
    index.remove(2)
    CountedArray.reads = 0
    index.remove(1)
    assert 100_002 == index.first
    # The ends of two blocks.
    assert 9_000 > CountedArray.reads


def test_messages_that_come_and_go_during_a_search_do_not_mislead_it() -> None:
    index = filled(b"a", *[b"b"] * 3_000, b"a", b"a")
    index.remove(3_003)
    entry = index.subjects[b"a"]
    steps = index.settle_lasts([entry])
    index.remove(3_002)
    next(steps)
    index.append(3_004, b"a", 1, 1)
    result_of(steps)
    assert (3_004, False) == (entry.last, entry.is_last_removed)
    index.remove(3_004)
    steps = index.settle_lasts([entry])
    next(steps)
    index.remove(1)
    index.append(3_005, b"c", 1, 1)
    result_of(steps)
    assert (3_005, None) == (index.subjects[b"c"].last, index.subjects.get(b"a"))


def test_holes_in_a_subject_with_a_limit_do_not_count() -> None:
    index = filled(*[b"a"] * 6, per_subject=6)
    for sequence in (3, 5, 6):
        index.remove(sequence)
    assert 4 == index.subjects[b"a"].last
    for sequence, expected in ((7, []), (8, []), (9, []), (10, [1])):
        assert expected == list(index.append(sequence, b"a", 1, 1))
    index.remove(1)
    index.remove(2)
    assert [4, 7, 8, 9, 10] == list(index.subjects[b"a"].kept or ())


def rolled_up(index: StreamIndex, befores: dict[bytes, int]) -> int:
    """Remove what a roll-up removes; return how many steps it took to find it."""
    steps = 0
    for sequence in index.roll_up(befores):
        if sequence is None:
            steps += 1
        else:
            assert index.remove(sequence)
    return steps


@pytest.mark.parametrize("seed", range(20))
def test_a_roll_up_removes_what_is_before_it_of_its_subject(seed: int) -> None:
    choose = random.Random(seed)
    model = {number: choose.choice(SUBJECTS) for number in range(1, 200)}
    index = filled(*model.values())
    for _ in range(5):
        for number in choose.sample(sorted(model), min(10, len(model))):
            del model[number]
            index.remove(number)
        befores = {each: choose.randrange(1, 220) for each in choose.sample(SUBJECTS, 2)}
        rolled_up(index, befores)
        model = {number: each for number, each in model.items() if number >= befores.get(each, 0)}
        assert sorted(model) == [number for number in range(1, 221) if index.has(number)]


def test_roll_ups_look_at_the_messages_once_and_not_at_those_of_others() -> None:
    """3,000 roll-ups on 200,000 messages took more than six minutes: each looked at all messages."""
    index = filled(*(b"k%d" % number for number in range(100_000)))
    many = {}
    for number in range(1_000):
        many[b"k%d" % number] = index.next
        index.append(index.next, b"k%d" % number, 10, 5_000)
        index.append(index.next, b"k%d" % number, 10, 5_000)
    assert 90 < rolled_up(index, many) < 110
    assert 0 == rolled_up(index, many)
    for number in range(1_000):
        index.append(index.next, b"k%d" % (90_000 + number), 10, 5_000)
        assert 0 == rolled_up(index, {b"k%d" % (90_000 + number): index.next - 1})
    assert 101_000 == index.count
