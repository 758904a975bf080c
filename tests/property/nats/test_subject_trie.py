"""The trie finds what comparing each pattern with the subject finds."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kalda.nats.subject_trie import CACHE_BYTES_MAX, SubjectTrie
from kalda.nats.subjects import ANY_TOKEN, ANY_TOKENS, is_valid_subject

tokens = st.sampled_from([b"a", b"b", b"c", b"*", b">", b"a*"])
patterns = st.lists(tokens, min_size=1, max_size=4).map(b".".join).filter(is_valid_subject)
subjects = st.lists(st.sampled_from([b"a", b"b", b"c", b"a*"]), min_size=1, max_size=5).map(b".".join)
subscriptions = st.lists(st.tuples(patterns, st.sampled_from([b"", b"", b"q", b"r"])), max_size=12)


def matches(pattern: bytes, subject: bytes) -> bool:
    """Return whether a valid pattern includes a literal subject."""
    wanted, tokens = pattern.split(b"."), subject.split(b".")
    for index, token in enumerate(wanted):
        if token == ANY_TOKENS:
            return len(tokens) > index
        if index >= len(tokens) or token not in (ANY_TOKEN, tokens[index]):
            return False
    return len(tokens) == len(wanted)


@given(subscriptions, st.lists(subjects, max_size=5), st.data())
def test_finds_all_that_match(
    added: list[tuple[bytes, bytes]], published: list[bytes], data: st.DataObject
) -> None:
    trie: SubjectTrie[int] = SubjectTrie()
    present = dict(enumerate(added))
    for number, (pattern, queue) in present.items():
        trie.add(pattern, queue, number)
    for subject in (*published, *published):
        found = trie.match(subject)
        expected = {each for each, (pattern, _) in present.items() if matches(pattern, subject)}
        assert sorted(each for each in expected if not present[each][1]) == sorted(found.plain)
        by_queue: dict[bytes, list[int]] = {}
        for each in sorted(expected):
            if present[each][1]:
                by_queue.setdefault(present[each][1], []).append(each)
        assert sorted(by_queue.values()) == sorted(sorted(members) for members in found.groups)
        if present:
            removed = data.draw(st.sampled_from(sorted(present)))
            trie.remove(*present.pop(removed), removed)
    for number, (pattern, queue) in present.items():
        trie.remove(pattern, queue, number)
    assert 0 == len(trie)
    assert trie._root.is_empty()


def test_many_tokens_do_not_recurse() -> None:
    """A client chooses the depth: a control line takes 2,000 tokens."""
    trie: SubjectTrie[int] = SubjectTrie()
    deep = b".".join([b"*"] * 2000)
    trie.add(deep, b"", 1)
    assert (1,) == trie.match(b".".join([b"x"] * 2000)).plain
    trie.remove(deep, b"", 1)
    assert 0 == len(trie)


def test_subject_with_gaps_is_for_nobody() -> None:
    trie: SubjectTrie[int] = SubjectTrie()
    trie.add(b">", b"", 1)
    for subject in (b"", b".", b"a.", b".a", b"a..b"):
        assert () == trie.match(subject).plain


def test_what_is_remembered_is_bounded_by_memory() -> None:
    """1,024 subjects of 4 KB, remembered for 10,000 subscriptions, would take 40 GB."""
    trie: SubjectTrie[int] = SubjectTrie()
    for number in range(2000):
        trie.add(b">", b"q" if number % 2 else b"", number)
    for number in range(100):
        assert 2000 == trie.match(b"a" * 3000 + b"%d" % number).size
        assert 0 < sum(len(subject) * each.size for subject, each in trie._cache.items()) <= CACHE_BYTES_MAX
    for number in range(2000, 8000):
        trie.add(b">", b"", number)
    large = trie.match(b"a" * 3000)
    assert (8000, False, 0) == (large.size, large.is_kept, len(trie._cache))


def test_cost_of_overlapping_patterns_is_counted() -> None:
    """Nobody gets the message, and still each of the overlapping patterns is looked at."""
    trie: SubjectTrie[int] = SubjectTrie()
    for number, tokens in enumerate(product((b"a", b"*"), repeat=10)):
        trie.add(b".".join(tokens) + b".x", b"", number)
    assert 0 == trie.match(b"a." * 10 + b"y").size
    assert 2**11 - 1 <= trie.visited
