"""Finds the assignors that `partition.assignment.strategy` names."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kalda.clients.consumer.assignors.cooperative_sticky_assignor import CooperativeStickyAssignor
from kalda.clients.consumer.assignors.partition_assignor import PartitionAssignor, RebalanceProtocol
from kalda.clients.consumer.assignors.range_assignor import RangeAssignor
from kalda.clients.consumer.assignors.round_robin_assignor import RoundRobinAssignor
from kalda.clients.consumer.assignors.sticky_assignor import StickyAssignor
from kalda.net.client.client_errors import ClientConfigError

_BUILT_IN: Final[Mapping[str, Callable[[], PartitionAssignor]]] = {
    RangeAssignor.name: RangeAssignor,
    RoundRobinAssignor.name: RoundRobinAssignor,
    StickyAssignor.name: StickyAssignor,
    CooperativeStickyAssignor.name: CooperativeStickyAssignor,
}
_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_JAVA_CLASSES: Final = {
    f"{_JAVA_PACKAGE}RangeAssignor": RangeAssignor.name,
    f"{_JAVA_PACKAGE}RoundRobinAssignor": RoundRobinAssignor.name,
    f"{_JAVA_PACKAGE}StickyAssignor": StickyAssignor.name,
    f"{_JAVA_PACKAGE}CooperativeStickyAssignor": CooperativeStickyAssignor.name,
}


def find_assignors(strategy: Iterable[str | PartitionAssignor]) -> list[PartitionAssignor]:
    """Return the assignors of a strategy, best first: by their names or Java's class names, or as given.

    Raises:
        ClientConfigError: a name is unknown or occurs twice, or there is none.
    """
    assignors: list[PartitionAssignor] = []
    for each in strategy:
        assignor = _built_in(each) if isinstance(each, str) else each
        if any(assignor.name == other.name for other in assignors):
            raise ClientConfigError(
                f"`partition.assignment.strategy` has two assignors with the name {assignor.name!r}; "
                f"leave one out"
            )
        assignors.append(assignor)
    if not assignors:
        raise ClientConfigError(
            f"`partition.assignment.strategy` is empty; use one of {', '.join(_BUILT_IN)}"
        )
    return assignors


def common_protocol(assignors: Iterable[PartitionAssignor]) -> RebalanceProtocol:
    """Return the highest rebalance protocol that all assignors support (KIP-429).

    Raises:
        ClientConfigError: they have none in common.
    """
    supported = {each.name: each.supported_protocols for each in assignors}
    common = frozenset(RebalanceProtocol).intersection(*supported.values())
    if not common:
        raise ClientConfigError(
            f"the assignors {', '.join(supported)} of `partition.assignment.strategy` support no common "
            f"rebalance protocol; leave some out"
        )
    return max(common)


def _built_in(name: str) -> PartitionAssignor:
    known = _BUILT_IN.get(_JAVA_CLASSES.get(name, name))
    if known is None:
        raise ClientConfigError(
            f"{name!r} in `partition.assignment.strategy` is not an assignor; use one of "
            f"{', '.join(_BUILT_IN)}, or an object of a class derived from PartitionAssignor"
        )
    return known()
