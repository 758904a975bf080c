"""The estimate of compressed sizes: careful, so that batches seldom have to be split."""

from kalda.clients.producer.compression_ratio import CompressionRatio


def test_it_improves_slowly_and_worsens_fast() -> None:
    ratio = CompressionRatio()
    ratio.observe(0.2)
    assert 0.995 == ratio.value
    for _ in range(1_000):
        ratio.observe(0.2)
    assert 0.2 == ratio.value
    ratio.observe(0.22)
    assert 0.25 == ratio.value
    ratio.observe(0.9)
    assert 0.9 == ratio.value


def test_the_estimate_is_five_percent_above_the_ratio() -> None:
    assert 1_050 == CompressionRatio().estimate(1_000)


def test_after_a_batch_that_was_too_large_it_starts_again() -> None:
    ratio = CompressionRatio()
    ratio.observe(0.1)
    ratio.reset()
    assert 1.0 == ratio.value
