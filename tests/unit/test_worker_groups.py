"""Tests that share a cluster or are short run on one worker, and no more of them than those."""

import pytest

from tests.worker_groups import worker_group


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/spark/test_spark_batch_read.py::test_all", "tests/spark/"),
        ("tests/behaviour/test_consumer.py::test_a[kalda-1]", "tests/behaviour/test_consumer.py[kalda-1]"),
        (
            "tests/behaviour/test_consumer.py::test_b[apache-3.9.1-classic]",
            "tests/behaviour/test_consumer.py[apache-3.9.1]",
        ),
        (
            "tests/behaviour/admin/test_admin_topics.py::test_pages[kalda-3-1000]",
            "tests/behaviour/admin/[kalda-3]",
        ),
        (
            "tests/behaviour/test_faults.py::test_a[kalda-3-cut]",
            "tests/behaviour/test_faults.py::test_a[kalda-3]",
        ),
        ("tests/unit/test_tidy.py::test_a[kalda-3]", "tests/unit/test_tidy.py"),
        ("tests/golden/test_a.py::TestA::test_a[a::b]", "tests/golden/test_a.py"),
        ("tests/system/test_a.py::test_a[kalda-3]", "tests/system/test_a.py::test_a[kalda-3]"),
    ],
)
def test_a_group_is_what_shares_a_cluster_or_is_short(nodeid: str, expected: str) -> None:
    assert expected == worker_group(nodeid)
