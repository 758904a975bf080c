"""Distributes groups of tests over the workers of pytest-xdist."""

from typing import Any

from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]  # it ships no types

from tests.worker_groups import worker_group


class SharedGroupScheduling(LoadGroupScheduling):  # type: ignore[misc]  # for the same reason
    """Runs the tests of a `worker_group` on one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return worker_group(nodeid)

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
