"""Distributes groups of tests over the workers of pytest-xdist."""

from collections.abc import Iterable
from typing import Any, Final

from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]  # it ships no types

from kalda.common.overriding import override
from tests.worker_groups import worker_group


class Collection(list[str]):
    """The tests of a worker. xdist looks for the place of each test, which takes a list of 31,000 a while."""

    def __init__(self, tests: Iterable[str]) -> None:
        super().__init__(tests)
        self._places: Final = {each: place for place, each in enumerate(self)}

    @override
    def index(self, test: str, *_: Any) -> int:
        return self._places[test]


class SharedGroupScheduling(LoadGroupScheduling):  # type: ignore[misc]  # for the same reason
    """Runs the tests of a `worker_group` on one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return worker_group(nodeid)

    def add_node_collection(self, node: Any, collection: Any) -> None:
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = Collection(collection)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a group that has run: after each test, xdist counts what is left of all of the worker."""
        nodeid = self.registered_collections[node][item_index]
        group = self._split_scope(nodeid)
        unit = self.assigned_work[node][group]
        unit[nodeid] = True
        if all(unit.values()):
            del self.assigned_work[node][group]
        self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Give the groups of a worker that has ended to the others, without the test that ended it.

        xdist gives them all groups that the worker ever had, one for each test that they end. Those without
        a test left keep the others waiting for the next test for ever, and the run never ends.
        """
        units: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        left = {group: unit for group, unit in units.items() if not all(unit.values())}
        tests = (each for unit in left.values() for each in unit.items())
        crashed = next((name for name, is_done in tests if not is_done), None)
        if crashed is None:
            return None
        group = self._split_scope(crashed)
        left[group][crashed] = True
        if all(left[group].values()):
            del left[group]
        self.workqueue.update(left)
        for other in self.assigned_work:
            if other in self.registered_collections:
                self._reschedule(other)
        return crashed
