"""Rates and budgets, on times that the test chooses; the expected figures are Kafka's formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.security.quota.rate import SampledRate, TokenBucket, Window

WINDOW = Window(11, 1.0)


class TestSampledRate:
    def test_first_bytes_count_as_if_most_of_the_window_had_passed(self) -> None:
        rate = SampledRate(WINDOW)
        rate.record(1000, 5.0)
        assert 100.0 == rate.per_second(5.0)

    def test_rate_after_a_full_window_is_a_mean_over_what_is_kept(self) -> None:
        rate = SampledRate(WINDOW)
        for second in range(30):
            rate.record(500, float(second))
        # The samples of seconds 19 to 29 are kept: 11 of them over the 10 seconds since the oldest began.
        assert 550.0 == rate.per_second(29.0)
        assert 500.0 == pytest.approx(rate.per_second(29.999), rel=0.001)

    def test_what_is_older_than_the_window_is_forgotten(self) -> None:
        rate = SampledRate(WINDOW)
        rate.record(1000, 0.0)
        assert 0.0 < rate.per_second(10.9)
        assert 0.0 == rate.per_second(11.0)
        assert rate.is_idle(11.0)

    def test_taking_back_leaves_nothing(self) -> None:
        rate = SampledRate(WINDOW)
        rate.record(1000, 0.0)
        rate.record(-1000, 0.5)
        assert 0.0 == rate.per_second(0.5)


class TestTokenBucket:
    def test_bucket_is_full_at_first(self) -> None:
        assert 22.0 == TokenBucket(WINDOW).left(2.0, 100.0)

    def test_bucket_may_be_overdrawn_and_fills_again(self) -> None:
        bucket = TokenBucket(WINDOW)
        bucket.take(30, 2.0, 0.0)
        assert -8.0 == bucket.left(2.0, 0.0)
        assert 4.0 == bucket.wait_seconds(2.0, 0.0)
        assert 0.0 == bucket.wait_seconds(2.0, 4.0)
        assert 22.0 == bucket.left(2.0, 1000.0)

    def test_an_empty_bucket_is_not_overdrawn(self) -> None:
        bucket = TokenBucket(WINDOW)
        bucket.take(22, 2.0, 0.0)
        assert 0.0 == bucket.wait_seconds(2.0, 0.0)

    def test_greater_rate_fills_faster_from_then_on(self) -> None:
        bucket = TokenBucket(WINDOW)
        bucket.take(22, 2.0, 0.0)
        assert 10.0 == bucket.left(10.0, 1.0)

    def test_debt_can_be_bounded(self) -> None:
        bucket = TokenBucket(WINDOW)
        bucket.take(1000, 2.0, 0.0, debt_max=10.0)
        assert 5.0 == bucket.wait_seconds(2.0, 0.0)

    @given(
        sizes=st.lists(st.integers(1, 1000), min_size=100, max_size=300),
        start=st.integers(0, 60),
    )
    def test_client_that_waits_as_it_is_bidden_stays_at_its_limit(self, sizes: list[int], start: int) -> None:
        """Over any 30 s after its first burst a busy client gets its quota, but for one request."""
        limit, now = 1000.0, 0.0
        bucket = TokenBucket(WINDOW)
        bucket.take(limit * WINDOW.length, limit, now)
        sent: list[tuple[float, int]] = []
        for size in sizes * 10:
            bucket.take(size, limit, now)
            sent.append((now, size))
            now += bucket.wait_seconds(limit, now)
        if now < start + 30:
            return
        got = sum(size for when, size in sent if start <= when < start + 30)
        assert limit * 30 == pytest.approx(got, abs=1000)
