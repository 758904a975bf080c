"""The parts of share groups are made once, when first used, and do their background work from then on."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.broker.context.service_tasks import ServiceTasks
from kalda.broker.share.lazy_share import LazyShare
from kalda.broker.share.share_metrics import register_share_metrics
from kalda.common.metrics import Metrics
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.net.metrics_text import render


class Parts:
    """What a test makes for `Share`."""

    def __init__(self) -> None:
        self.run_count = 0
        self.deleted: list[str] = []
        self.groups = SimpleNamespace(delete_state=self.deleted.append)
        self.partitions = SimpleNamespace(sessions=[1, 2])

    def run(self, tasks: ServiceTasks, config: ShareCoordinatorConfig) -> None:
        assert (TASKS, CONFIG) == (tasks, config)
        self.run_count += 1


CONFIG = ShareCoordinatorConfig()
TASKS = cast(ServiceTasks, object())


@pytest.mark.parametrize("is_used_first", [False, True])
def test_background_work_begins_once_there_are_parts_and_tasks(is_used_first: bool) -> None:
    made: list[Parts] = []

    def build() -> Any:
        made.append(Parts())
        return made[-1]

    share = LazyShare(CONFIG, cast(Any, SimpleNamespace()), build)
    if not is_used_first:
        share.run(TASKS)
        assert [] == made
    assert share.parts is share.parts
    if is_used_first:
        assert 0 == made[0].run_count
        share.run(TASKS)
    assert [1] == [each.run_count for each in made]


def test_deletion_of_a_share_group_makes_the_parts_and_metrics_do_not() -> None:
    """A share group of an earlier run has state at share coordinators, which must go with it."""
    parts = Parts()
    groups: Any = SimpleNamespace(groups=list)
    share = LazyShare(CONFIG, groups, lambda: cast(Any, parts))
    metrics = Metrics()
    register_share_metrics(metrics, share, groups)
    assert b"\nkafka_server_sharesessioncache_sharesessionscount 0" in render(metrics)
    assert share.made is None
    groups.delete_share_state("g")
    assert ["g"] == parts.deleted
