"""The server-side assignors: pure functions from subscriptions and the current target to a new assignment.

An assignor keeps no state and sees no cluster: `target_assignment` passes it a `GroupSpec` and stores what it
returns. The package imports nothing outside `kalda.coordinator.group.consumer`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kalda.coordinator.group.consumer.assignors.partition_assignor import Assignor
from kalda.coordinator.group.consumer.assignors.range_assignor import RangeAssignor
from kalda.coordinator.group.consumer.assignors.uniform_assignor import UniformAssignor

__all__ = ["KNOWN_ASSIGNORS", "Assignor", "assignor_named"]

KNOWN_ASSIGNORS: Final[Mapping[str, type[UniformAssignor] | type[RangeAssignor]]] = MappingProxyType(
    {
        UniformAssignor.name: UniformAssignor,
        RangeAssignor.name: RangeAssignor,
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": UniformAssignor,
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": RangeAssignor,
    }
)
"""The assignors by the values of `group.consumer.assignors`: their names, or Kafka's class names."""


def assignor_named(name: str) -> Assignor:
    """Return the assignor that a setting names.

    Raises:
        ValueError: no assignor has that name.
    """
    found = KNOWN_ASSIGNORS.get(name)
    if found is None:
        raise ValueError(
            f"group.consumer.assignors names {name!r}; "
            f"there are {UniformAssignor.name!r} and {RangeAssignor.name!r}"
        )
    return found()
