"""Which files a compaction joins."""

from hypothesis import given
from hypothesis import strategies as st

from kalda.pipelines.tables.compaction import Candidate, plan_bins
from kalda.pipelines.tables.model import CompactPolicy

NOW_MS = 10_000_000


def files(*sizes: int, partition: str = "a", age_s: float = 1_000) -> list[Candidate]:
    committed = NOW_MS - round(age_s * 1000)
    return [
        Candidate(f"{partition}/{number}", (("k", partition),), size, committed + number)
        for number, size in enumerate(sizes)
    ]


def planned(candidates: list[Candidate], **policy: float) -> list[list[str]]:
    chosen = {"file_bytes_target": 100, "newest_kept_s": 600.0, **policy}
    bins = plan_bins(candidates, CompactPolicy(**chosen), NOW_MS)  # type: ignore[arg-type]  # numbers of either kind
    return [[file.path for file in each] for each in bins]


def test_small_files_of_a_partition_are_joined_oldest_first() -> None:
    assert [["a/0", "a/1", "a/2"]] == planned(files(30, 30, 30)[::-1])


def test_files_near_the_target_stay() -> None:
    assert [["a/0", "a/2"]] == planned(files(30, 75, 30))


def test_a_bin_holds_the_target_at_most() -> None:
    assert [["a/0", "a/1"], ["a/2", "a/3"]] == planned(files(50, 50, 60, 40))


def test_one_file_is_not_written_again() -> None:
    assert [] == planned(files(10))
    assert [] == planned(files(60, 60))
    assert [] == planned(files(10, 10), files_min=3)


def test_partitions_are_not_mixed() -> None:
    assert [["a/0", "a/1"]] == planned([*files(10, 10), *files(10, partition="b")])


def test_new_files_stay() -> None:
    """Those of a batch that is being published must not be taken from it."""
    assert [] == planned(files(10, 10, age_s=599))
    assert [["a/0", "a/1"]] == planned(files(10, 10, age_s=601))


def test_a_run_reads_a_bounded_number_of_bytes() -> None:
    assert [["a/0", "a/1"]] == planned(files(50, 40, 50, 50), bytes_max=100)


@given(
    st.lists(
        st.builds(
            Candidate,
            st.uuids().map(str),
            st.sampled_from([(("k", "a"),), (("k", None),), ()]),
            st.integers(0, 150),
            st.integers(NOW_MS - 700_000, NOW_MS),
        ),
        max_size=40,
    )
)
def test_each_file_is_in_one_bin_at_most(candidates: list[Candidate]) -> None:
    policy = CompactPolicy(file_bytes_target=100, bytes_max=1_000)
    bins = plan_bins(candidates, policy, NOW_MS)
    joined = [file for each in bins for file in each]
    assert len(joined) == len({file.path for file in joined})
    assert sum(file.size_bytes for file in joined) <= 1_000
    for each in bins:
        assert 2 <= len(each)
        assert 1 == len({file.partition for file in each})
        assert sum(file.size_bytes for file in each) <= 100
        assert all(file.committed_ms <= NOW_MS - 600_000 for file in each)
