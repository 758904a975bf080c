"""What a peer may send before it has logged in: junk, and valid messages that were cut and changed."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.login_parsers import SEEDS

PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"\0", b"\xff" * 4, b"=", b",", b".", b'"', b"{", b"[" * 2000, b"Infinity", b"1e308", b"-1"]
    ),
    st.integers(0, 400).map(lambda digits: b"9" * digits),
    st.text(max_size=5).map(lambda text: text.encode("utf-8", "surrogatepass")),
)


@st.composite
def changed(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """One of the seeds, or two behind each other, with some ranges replaced."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(seeds), min_size=1, max_size=2))))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        stop = draw(
            st.one_of(st.just(start), st.integers(start, min(len(data), start + 20)), st.just(len(data)))
        )
        data[start:stop] = draw(PIECES)
    return bytes(data)


@pytest.mark.parametrize("parse", SEEDS, ids=lambda parse: parse.__name__)
def test_valid_messages_are_taken_and_changed_ones_raise_what_is_documented(
    parse: Callable[[bytes], None],
) -> None:
    for seed in SEEDS[parse]:
        for cut in range(0, len(seed), 1 + len(seed) // 100):
            parse(seed[:cut])

    @given(st.one_of(st.binary(max_size=200), changed(SEEDS[parse])))
    def check(data: bytes) -> None:
        parse(data)

    check()
