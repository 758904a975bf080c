"""Subjects and patterns of streams and consumers."""

import random
from itertools import product

import pytest

from kalda.common.steps import result_of
from kalda.nats.jetstream.patterns import Pattern, PatternSet, is_pattern, overlapping


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        (b"a", b"a", True),
        (b"a", b"a.b", False),
        (b"a.*", b"a.b", True),
        (b"a.*", b"a", False),
        (b"a.*", b"a.b.c", False),
        (b"a.>", b"a.b.c", True),
        (b"a.>", b"a", False),
        (b">", b"a", True),
        (b"*.b.>", b"a.b.c", True),
        (b"*.b.>", b"a.c.c", False),
    ],
)
def test_a_pattern_includes_subjects(pattern: bytes, subject: bytes, expected: bool) -> None:
    assert expected is Pattern(pattern).includes(subject)


@pytest.mark.parametrize(
    ("one", "two", "overlap", "includes"),
    [
        (b"a.*", b"a.b", True, True),
        (b"a.b", b"a.*", True, False),
        (b"a.>", b"*.b", True, False),
        (b"a.>", b"a.*.c", True, True),
        (b"a.*", b"b.*", False, False),
        (b"a.>", b"a", False, False),
        (b"*.b", b"a.*", True, False),
        (b">", b"a.>", True, True),
        (b"a.*", b"a.>", True, False),
    ],
)
def test_patterns_overlap_and_include_others(one: bytes, two: bytes, overlap: bool, includes: bool) -> None:
    assert overlap is Pattern(one).overlaps(Pattern(two)) is Pattern(two).overlaps(Pattern(one))
    assert includes is Pattern(one).includes_all(Pattern(two))


@pytest.mark.parametrize("text", ["", ".", "a..b", "a b", "a\r\nPING", "a.>.b", "x" * 5000])
def test_texts_that_are_no_subject_are_refused(text: str) -> None:
    assert not is_pattern(text)


def test_a_pattern_with_an_expression_compares_token_by_token() -> None:
    tokens = ["", "a", "b", "*", "+", "a\n"]
    subjects = [".".join(each) for count in (1, 2, 3) for each in product(tokens, repeat=count)]
    for text in ("*", ">", "a.*", "*.a", "a.>", "*.>", "*.b.*", "a.*.>", "+.*"):
        wanted = text.split(".")
        for subject in subjects:
            found = subject.split(".")
            if wanted[-1] == ">":
                expected = len(found) >= len(wanted)
                pairs = zip(wanted[:-1], found, strict=False)
            else:
                expected = len(found) == len(wanted)
                pairs = zip(wanted, found, strict=False)
            expected = expected and all(one in ("*", two) for one, two in pairs)
            assert expected is Pattern(text.encode()).includes(subject.encode()), (text, subject)


END = object()


def test_a_set_of_patterns_overlaps_as_each_of_them() -> None:
    choose = random.Random(7)

    def some() -> Pattern:
        tokens = [choose.choice([b"a", b"b", b"*"]) for _ in range(choose.randint(1, 3))]
        if choose.random() < 0.3:
            tokens.append(b">")
        return Pattern(b".".join(tokens))

    for _ in range(3_000):
        patterns, other = [some() for _ in range(choose.randint(1, 4))], some()
        expected = any(each.overlaps(other) for each in patterns)
        assert expected is PatternSet(patterns).overlaps(other), (
            [each.text for each in patterns],
            other.text,
        )


@pytest.mark.parametrize("other", [b"a", b"*", b">", b"a.*", b"a.>"])
def test_nothing_overlaps_with_no_patterns(other: bytes) -> None:
    assert not PatternSet([]).overlaps(Pattern(other))


def test_patterns_of_very_many_streams_are_compared_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 streams with 64 subjects each were compared with those of a new one in a turn of seconds."""
    groups = [(name, [Pattern(b"*.%d.%d" % (name, each)) for each in range(64)]) for name in range(100)]
    wanted = [Pattern(b"s%d.99.%d" % (each, each + 63)) for each in range(64)]
    visits: list[int] = []
    overlaps = PatternSet.overlaps

    def counted(self: PatternSet, other: Pattern) -> bool:
        before = self.visited
        result = overlaps(self, other)
        visits[-1] += self.visited - before
        return result

    monkeypatch.setattr(PatternSet, "overlaps", counted)
    steps = overlapping(wanted, groups)
    visits.append(0)
    while next(steps, END) is not END:
        visits.append(0)
    assert 6_000 < len(visits)
    assert 64 + 65 >= max(visits)
    assert [99] == result_of(overlapping(wanted, groups))
    assert [] == result_of(overlapping([Pattern(b"t")], groups))
    assert [3, 4] == result_of(overlapping([Pattern(b"s.3.>"), Pattern(b"s.4.7")], groups))
