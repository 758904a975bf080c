"""What leaders of a share partition are said to have forgotten."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.clients.share.acknowledgements import SharePartition
from kalda.common.types import UUID, TopicPartition
from kalda.simulation.checks.deliveries import Place
from kalda.simulation.checks.share_leaders import ShareLeaders
from kalda.simulation.cluster import SimulatedCluster

AT: Place = (0, 7)


class Leaders(ShareLeaders):
    """The leaders that a test names by their epochs, which would deliver every record again."""

    def __init__(self, *epochs: int, newest: int) -> None:
        super().__init__(cast(SimulatedCluster, None), "group")
        self._epochs = epochs
        self._newest = newest
        self._sources[0] = SharePartition(UUID(int=1), TopicPartition("jobs", 0))

    def newest_epoch(self, name: TopicPartition) -> int:
        return self._newest

    def _leaders(self, number: int) -> list[Any]:
        core = SimpleNamespace(is_done=lambda offset: False)
        return [SimpleNamespace(leader_epoch=each, core=core) for each in self._epochs]


@pytest.mark.parametrize(
    ("epochs", "newest", "expected"),
    [
        pytest.param([6], 6, "the leader in epoch 6", id="the newest leader"),
        pytest.param([5], 6, None, id="a leader that was replaced"),
        pytest.param([4], 4, None, id="the leader that answered"),
        pytest.param([5, 6], 6, "the leader in epoch 6", id="both"),
    ],
)
def test_only_the_newest_leader_has_to_know_what_was_acknowledged(
    epochs: list[int], newest: int, expected: str | None
) -> None:
    assert expected == Leaders(*epochs, newest=newest).forgotten_by(AT, 4)
