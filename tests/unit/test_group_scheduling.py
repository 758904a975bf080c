"""A worker that ends in the middle of a run costs one test, not the run."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.group_scheduling import SharedGroupScheduling


class Worker:
    """Runs a test as soon as it has the next one, or is told that there is none."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.queue: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def next_test(self) -> int | None:
        return self.queue.pop(0) if len(self.queue) > (not self.shutting_down) else None


def started(config: pytest.Config, workers: list[Worker], tests: list[str]) -> SharedGroupScheduling:
    options = SimpleNamespace(tx=["popen"] * len(workers), px=[], loadscopereorder=True, debug=False)
    values = {"tx": options.tx, "px": options.px}
    made = SharedGroupScheduling(
        SimpleNamespace(option=options, getvalue=values.__getitem__, hook=config.hook)
    )
    for worker in workers:
        made.add_node(worker)
        made.add_node_collection(worker, tests)
    made.schedule()
    return made


def run(scheduling: Any, workers: list[Worker], tests: list[str], ran: list[str]) -> None:
    """Run tests until every worker waits."""
    has_run = True
    while has_run:
        has_run = False
        for worker in workers:
            index = worker.next_test()
            if index is not None:
                has_run = True
                ran.append(tests[index])
                scheduling.mark_test_complete(worker, index)
                if scheduling.tests_finished:
                    for each in workers:
                        each.shutdown()


@pytest.mark.parametrize("before", [0, 30, 90])
def test_the_tests_of_a_worker_that_ended_run_elsewhere(pytestconfig: pytest.Config, before: int) -> None:
    tests = [f"tests/system/test_a.py::test_{number}" for number in range(100)]
    workers = [Worker("gw0"), Worker("gw1")]
    scheduling = started(pytestconfig, workers, tests)
    ran: list[str] = []
    while len(ran) < before:
        for worker in workers:
            index = worker.next_test()
            assert index is not None
            ran.append(tests[index])
            scheduling.mark_test_complete(worker, index)
    crashed = scheduling.remove_node(workers[0])
    assert tests[workers[0].queue[0]] == crashed
    clone = Worker("gw2")
    scheduling.add_node(clone)
    scheduling.add_node_collection(clone, tests)
    scheduling.schedule()
    run(scheduling, [workers[1], clone], tests, ran)
    assert sorted(tests) == sorted([*ran, crashed])


def test_the_rest_of_the_group_of_the_test_that_ended_its_worker_runs(pytestconfig: pytest.Config) -> None:
    tests = [f"tests/spark/test_a.py::test_{number}" for number in range(10)]
    tests += [f"tests/system/test_a.py::test_{number}" for number in range(10)]
    workers = [Worker("gw0"), Worker("gw1")]
    scheduling = started(pytestconfig, workers, tests)
    assert tests[:10] == [tests[index] for index in workers[0].queue[:10]]
    index = workers[0].next_test()
    assert 0 == index
    scheduling.mark_test_complete(workers[0], index)
    assert "tests/spark/test_a.py::test_1" == scheduling.remove_node(workers[0])
    ran = [tests[0]]
    run(scheduling, workers[1:], tests, ran)
    assert sorted(tests) == sorted([*ran, tests[1]])


def test_a_worker_that_ended_its_work_leaves_nothing(pytestconfig: pytest.Config) -> None:
    tests = ["tests/system/test_a.py::test_a"]
    workers = [Worker("gw0")]
    scheduling = started(pytestconfig, workers, tests)
    scheduling.mark_test_complete(workers[0], 0)
    assert scheduling.remove_node(workers[0]) is None
