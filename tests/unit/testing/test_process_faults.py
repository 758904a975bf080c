"""The plans of faults of brokers that are processes."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from kalda.clients.admin.admin import Admin
from kalda.clients.errors import error_for
from kalda.clients.network_client import BOOTSTRAP_ID_BASE
from kalda.common.errors import ErrorCode
from kalda.faults import FaultPlan
from kalda.testing.planned_faults import FaultyCluster
from kalda.testing.process import CommandProcess
from kalda.testing.process_faults import ProcessFaults


class Brokers:
    """Two brokers, of which the clients find those that are registered, by metadata that is always fresh."""

    def __init__(self) -> None:
        self.plans = {0: "", 1: ""}
        self.registered = {0, 1}
        self.open = 0

    def admin(self, broker_id: int | None) -> Admin:
        assert broker_id is not None
        self.open += 1
        return cast(Admin, AdminOfOne(self, broker_id))


class AdminOfOne:
    def __init__(self, brokers: Brokers, bootstrap: int) -> None:
        self._brokers = brokers
        self._bootstrap = bootstrap

    def __enter__(self) -> "AdminOfOne":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._brokers.open -= 1

    def alter_faults(self, plan: str, broker_ids: Sequence[int], *, outcomes: bool) -> Any:
        assert outcomes
        errors = {}
        for each in broker_ids:
            if each == BOOTSTRAP_ID_BASE:
                self._brokers.plans[self._bootstrap] = plan
            elif each in self._brokers.registered:
                self._brokers.plans[each] = plan
            else:
                errors[each] = error_for(ErrorCode.BROKER_NOT_AVAILABLE, "")
        return SimpleNamespace(errors=errors)


def test_a_broker_whose_session_has_expired_meanwhile_gets_the_end_of_a_cut() -> None:
    """It is not in the metadata any more, and comes back only after the end."""
    brokers = Brokers()
    process = cast(CommandProcess, SimpleNamespace(is_running=True))
    faults = ProcessFaults(cast(FaultyCluster, SimpleNamespace()), [process, process], brokers.admin)

    faults.begin(FaultPlan.parse("link:cut@1-coordinator"))
    assert {0: "link:cut@1-coordinator", 1: "link:cut@1-coordinator"} == brokers.plans
    brokers.registered.remove(1)
    faults.end()

    assert {0: "", 1: ""} == brokers.plans
    assert 0 == brokers.open
