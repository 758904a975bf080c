"""Decides which fault of a plan applies to a request: `FaultState`."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Protocol
from zlib import crc32

from kalda.common.api_keys import ApiKey
from kalda.faults.model import TRANSACTION_APIS, RequestEffect, RequestFault, code_for
from kalda.faults.plan import FaultPlan
from kalda.runtime.random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """The facts that a fault is matched with: a request, its sender and the receiving broker."""

    api_key: int
    version: int
    broker: int
    client: str | None = None
    is_of_broker: bool = False
    """Whether a broker sent it."""
    topics: Mapping[str, Collection[int]] = field(default_factory=dict)
    """The topics that the request names, with the partitions; none where it names only the topic."""
    groups: Collection[str] = ()
    transactional_ids: Collection[str] = ()
    has_header: Callable[[str], bool] = lambda _: False
    """Returns whether a record has a header, ``name`` or ``name=value``."""
    producer: int = -1
    """The producer id of the records; with the client id it is the identity by which clients are routed."""


class Faults(Protocol):
    """Decides which fault applies to a request: a `FaultState`, or one that threads share."""

    @property
    def faults(self) -> tuple[RequestFault, ...]:
        """The faults of requests."""
        ...

    def next(self, facts: RequestFacts) -> RequestFault | None:
        """Count a request and return the fault that applies to it, if there is one."""
        ...


class FaultState:
    """Counts for each fault of requests how often it matched and applied. Not safe to use from threads.

    The faults are tried in their order, and the first that applies decides. A request counts for a fault if
    it matches and no earlier fault applied to it:

        produce:NOT_LEADER*2; produce:delay=1s*1     requests 1 and 2 fail, request 3 is delayed
    """

    def __init__(self, plan: FaultPlan, random: Random) -> None:
        self._random: Final = random
        self._faults: Final = plan.request_faults
        self.matched: Final = [0] * len(self._faults)
        """How many requests each fault matched."""
        self.applied: Final = [0] * len(self._faults)
        """To how many of them it applied."""

    @property
    def faults(self) -> tuple[RequestFault, ...]:
        """The faults of requests, in the order of the counts."""
        return self._faults

    def next(self, facts: RequestFacts) -> RequestFault | None:
        """Count a request and return the fault that applies to it, if there is one."""
        for index, fault in enumerate(self._faults):
            if not matches(fault, facts):
                continue
            self.matched[index] += 1
            if self.matched[index] < fault.nth:
                continue
            if fault.times is not None and self.applied[index] >= fault.times:
                continue
            if fault.percent < 100 and not self._is_drawn(fault, facts):
                continue
            self.applied[index] += 1
            return fault
        return None

    def _is_drawn(self, fault: RequestFault, facts: RequestFacts) -> bool:
        if fault.effect is RequestEffect.ROUTE:
            # All requests of a client go the same way: the order of its records and the sequence numbers of
            # an idempotent producer are those of one topic.
            identity = f"{fault.to}/{facts.client}/{facts.producer}"
            return crc32(identity.encode()) / 2**32 * 100 < fault.percent
        return self._random.random() * 100 < fault.percent


def matches(fault: RequestFault, facts: RequestFacts) -> bool:
    """Return whether a fault is about a request, whatever its counts are."""
    if facts.api_key not in fault.apis:
        return False
    if fault.source != "all" and facts.is_of_broker != (fault.source == "brokers"):
        return False
    if fault.code is not None and code_for(fault.code, ApiKey(facts.api_key), facts.version) is None:
        return False
    if fault.broker is not None and fault.broker != facts.broker:
        return False
    if fault.client is not None and not fnmatchcase(facts.client or "", fault.client):
        return False
    if fault.apis == TRANSACTION_APIS and facts.api_key == ApiKey.PRODUCE and not facts.transactional_ids:
        return False
    return (
        _has_name(fault.group, facts.groups)
        and _has_name(fault.transactional_id, facts.transactional_ids)
        and (not fault.is_partial or any(concerned(fault, *each) for each in facts.topics.items()))
        and (fault.header is None or facts.has_header(fault.header))
    )


def concerned(fault: RequestFault, topic: str, partitions: Collection[int]) -> bool:
    """Return whether a fault is about a topic, or about some of these partitions of it."""
    if fault.topic is not None and not fnmatchcase(topic, fault.topic):
        return False
    return fault.partition is None or fault.partition in partitions


def _has_name(pattern: str | None, names: Collection[str]) -> bool:
    return pattern is None or any(fnmatchcase(name, pattern) for name in names)
