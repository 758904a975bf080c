"""Defines the plan of faults: `FaultPlan`, which is read from text, mappings, YAML and Python objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from kalda.common.overriding import override
from kalda.common.public import public_in
from kalda.faults.entries import entry_of, fault_of
from kalda.faults.model import BrokerFault, Fault, FaultError, LinkFault, RequestFault
from kalda.faults.text import fault_text, parse_fault, parse_faults

FAULTS_MAX: Final = 1000
"""Each request is compared with all faults of requests."""

_KEY: Final = "faults"


@public_in("kalda.faults")
@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults, in their order; a value that does nothing by itself.

    Raises:
        FaultError: there are more than 1000 faults.
    """

    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if len(self.faults) > FAULTS_MAX:
            raise FaultError(f"a plan of {len(self.faults)} faults; at most {FAULTS_MAX} are allowed")

    @classmethod
    def parse(cls, plan: "str | Fault | FaultPlan | Iterable[str | Fault]") -> Self:
        """Return a plan from its short form, from one fault, or from several in either form.

        Raises:
            FaultError: a fault is not valid.
        """
        if isinstance(plan, FaultPlan):
            return cls(plan.faults)
        if isinstance(plan, str):
            return cls(tuple(parse_faults(plan)))
        if isinstance(plan, (RequestFault, BrokerFault, LinkFault)):
            return cls((plan,))
        faults: list[Fault] = []
        for each in plan:
            faults += parse_faults(each) if isinstance(each, str) else [each]
        return cls(tuple(faults))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> Self:
        """Return the plan of ``{"faults": […]}``, whose elements are mappings or short forms.

        Raises:
            FaultError: the mapping has another form, or a fault is not valid; the message has its number.
        """
        unknown = [key for key in mapping if key != _KEY]
        if unknown:
            raise FaultError(f"a plan has the key {_KEY!r} only, found {unknown[0]!r}")
        entries = mapping.get(_KEY)
        if entries is None or isinstance(entries, str) or not isinstance(entries, Iterable):
            raise FaultError(f"{_KEY!r} must be a list of faults, found {entries!r}")
        faults: list[Fault] = []
        for number, entry in enumerate(entries, 1):
            try:
                if isinstance(entry, str):
                    faults.append(parse_fault(entry))
                elif isinstance(entry, Mapping):
                    faults.append(fault_of({str(key): value for key, value in entry.items()}))
                else:
                    raise FaultError(f"a fault is a text or a mapping, found {entry!r}")
            except FaultError as error:
                raise FaultError(f"fault {number}: {error}") from None
        return cls(tuple(faults))

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Return the plan of a YAML document, which is as in `from_mapping`.

        Raises:
            FaultError: it is no YAML, has another form, or a fault is not valid.
        """
        # Imported only when needed: few programs read plans.
        import yaml

        try:
            document: Any = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise FaultError(f"the plan is no YAML: {error}") from None
        if not isinstance(document, Mapping):
            raise FaultError(f"a plan is a mapping with the key {_KEY!r}, found {type(document).__name__}")
        return cls.from_mapping({str(key): value for key, value in document.items()})

    def to_mapping(self) -> dict[str, list[dict[str, object]]]:
        """Return a mapping from which `from_mapping` makes an equal plan."""
        return {_KEY: [entry_of(fault) for fault in self.faults]}

    @override
    def __str__(self) -> str:
        return "; ".join(map(fault_text, self.faults))

    @property
    def request_faults(self) -> tuple[RequestFault, ...]:
        """The faults of requests."""
        return tuple(each for each in self.faults if isinstance(each, RequestFault))

    @property
    def broker_faults(self) -> tuple[BrokerFault, ...]:
        """The faults of brokers, their disks, clocks and sessions."""
        return tuple(each for each in self.faults if isinstance(each, BrokerFault))

    @property
    def link_faults(self) -> tuple[LinkFault, ...]:
        """The faults of links."""
        return tuple(each for each in self.faults if isinstance(each, LinkFault))
