"""Assignments that Apache Kafka's Java client computed (see tests/compat/test_java_assignors.py)."""

from pathlib import Path

import pytest

from tests.assignor_cases import read_case, result_lines

VECTORS = Path(__file__).parent / "assignor-vectors.txt"
BLOCKS = VECTORS.read_text().strip().split("\n\n") if VECTORS.exists() else []


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_an_assignment_equals_javas(block: str) -> None:
    """Members of both languages in one group rely on it: any of them may be the leader."""
    case, _, result = block.partition("\n----\n")
    lines = [line for line in case.splitlines() if not line.startswith("#")]
    assert result.splitlines() == result_lines(read_case(lines).assign())
