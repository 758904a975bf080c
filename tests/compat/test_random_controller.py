"""A few rounds of `tests.compat.random_controller`: both controllers leave the same znodes and logs."""

from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from tests.compat.mixed_cluster import KAFKA, KALDA
from tests.compat.random_controller import Side
from tests.compat.znode_snapshot import differences

ROUNDS = 4
SEED = 1

pytestmark = pytest.mark.timeout(900)


def test_both_controllers_leave_the_same_state(tmp_path: Path) -> None:
    try:
        sides = [Side(controller, SEED, tmp_path) for controller in (KALDA, KAFKA)]
    except NotAvailableError as error:
        pytest.skip(str(error))
    ours, theirs = (side.run(lambda done: done == ROUNDS) for side in sides)
    assert [] == differences(ours, theirs)
