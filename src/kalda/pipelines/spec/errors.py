"""Defines the errors of a pipeline file, which are reported all at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kalda.pipelines.spec.model import Place


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in a file."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class PipelineFileError(ValueError):
    """A pipeline file is wrong; the message has a line for each fault, in the order of the file."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        ordered = sorted(set(faults), key=lambda each: (each.place.line, each.place.column))
        self.faults: Final = tuple(ordered)
        super().__init__("\n".join(map(str, ordered)))


class FaultList:
    """Collects the faults of one file while it is read."""

    def __init__(self) -> None:
        self._faults: Final[list[Fault]] = []

    def add(self, place: Place, message: str) -> None:
        """Remember a fault; reading goes on."""
        self._faults.append(Fault(place, message))

    def __len__(self) -> int:
        return len(self._faults)

    def check(self) -> None:
        """Raise what was found.

        Raises:
            PipelineFileError: there is a fault.
        """
        if self._faults:
            raise PipelineFileError(self._faults)
