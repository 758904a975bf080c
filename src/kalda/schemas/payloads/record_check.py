"""Decides whether the keys or the values of a batch may be appended to a topic.

`FieldCheck.check` returns what is wrong, and the ids that must be looked up before more can be said. It asks
for what is known (`KnownSchemas`) and changes nothing, so any thread may call it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from kalda.schemas.payloads.errors import BadPayloadError
from kalda.schemas.payloads.framing import HEADER_BYTES, schema_id_of
from kalda.schemas.payloads.subjects import SubjectNameStrategy

WANTED_MAX: Final = 64
"""Ids that a batch has looked up at a time. A usual one has one or two; random bytes could name thousands."""


class ValidationMode(StrEnum):
    """What is checked of each key or value."""

    OFF = "off"
    ID = "id"
    """The framing, and that the subject has the schema."""
    FULL = "full"
    """The payload too."""


class PayloadCheck(Protocol):
    """Checks payloads of one schema."""

    def check(self, values: Sequence[bytes]) -> list[tuple[int, BadPayloadError]]:
        """Return the index and the fault of each framed value that is not of the schema."""
        ...

    def record_name_of(self, value: bytes) -> str | None:
        """Return the full name of a framed value's record or message; a JSON schema's title.

        Raises:
            BadPayloadError: The value names no message of the schema.
        """
        ...


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """What a registry said of an id.

    Args:
        id: The id.
        subjects: Where the schema is registered.
        check: Checks payloads; None if the schema cannot be used, then `problem` has the reason.
    """

    id: int
    subjects: frozenset[str]
    check: PayloadCheck | None = None
    problem: str = ""


class KnownSchemas(Protocol):
    """What is known of a registry at this moment."""

    def find(self, schema_id: int) -> KnownSchema | None:
        """Return what is known of an id; None if nothing is."""
        ...

    def is_denied(self, wanted: "Wanted") -> bool:
        """Return whether a recent lookup, made for this, did not find it."""
        ...


Wanted = tuple[int, str]
"""An id, and the subject that is to have it; the empty subject stands for any."""


@dataclass(slots=True)
class Findings:
    """What a check found: faults by index of the record, and what to look up."""

    faults: dict[int, str] = field(default_factory=dict)
    wanted: set[Wanted] = field(default_factory=set)


class FieldCheck:
    """Checks the keys or the values of one topic's records."""

    def __init__(
        self, topic: str, mode: ValidationMode, strategy: SubjectNameStrategy, *, is_key: bool
    ) -> None:
        self._topic: Final = topic
        self._is_full: Final = mode is ValidationMode.FULL
        self._strategy: Final = strategy
        self._is_key: Final = is_key
        self._subject: Final = (
            strategy.subject(topic, None, is_key=is_key) if strategy is SubjectNameStrategy.TOPIC else None
        )

    def check(self, values: Sequence[bytes | None], schemas: KnownSchemas, findings: Findings) -> None:
        """Check values, null for none, which passes; add to `findings`."""
        heads = {value[:HEADER_BYTES] for value in values if value is not None}
        for head in heads:
            places: Sequence[int] = range(len(values))
            chosen: Sequence[bytes] = values  # type: ignore[assignment] # where none of them is None
            if len(heads) > 1 or None in values:
                places = [
                    index
                    for index, value in enumerate(values)
                    if value is not None and value[:HEADER_BYTES] == head
                ]
                chosen = [value for index in places if (value := values[index]) is not None]
            try:
                schema_id = schema_id_of(head)
            except BadPayloadError as error:
                self._note(findings, places, error)
                continue
            self._check(schema_id, places, chosen, schemas, findings)
            if len(findings.wanted) >= WANTED_MAX:
                return

    def _check(
        self,
        schema_id: int,
        places: Sequence[int],
        values: Sequence[bytes],
        schemas: KnownSchemas,
        findings: Findings,
    ) -> None:
        known = schemas.find(schema_id)
        if known is None:
            if schemas.is_denied((schema_id, "")):
                error = BadPayloadError(f"the registry has no schema with the id {schema_id}")
                self._note(findings, places, error)
            else:
                findings.wanted.add((schema_id, ""))
            return
        if self._subject is not None:
            if self._subject not in known.subjects:
                self._note_foreign(known, self._subject, places, schemas, findings)
                return
        elif not self._has_subjects(known, places, values, schemas, findings):
            return
        if not self._is_full:
            return
        if known.check is None:
            self._note(findings, places, _unusable(known))
            return
        for index, error in known.check.check(values):
            self._note(findings, (places[index],), error)

    def _has_subjects(
        self,
        known: KnownSchema,
        places: Sequence[int],
        values: Sequence[bytes],
        schemas: KnownSchemas,
        findings: Findings,
    ) -> bool:
        """Return whether the schema is registered under the subjects of all values; note where it is not."""
        if known.check is None:
            self._note(findings, places, _unusable(known))
            return False
        is_good = True
        for place, value in zip(places, values, strict=True):
            try:
                name = known.check.record_name_of(value)
                subject = self._strategy.subject(self._topic, name, is_key=self._is_key)
            except BadPayloadError as error:
                self._note(findings, (place,), error)
                is_good = False
                continue
            if subject not in known.subjects:
                self._note_foreign(known, subject, (place,), schemas, findings)
                is_good = False
        return is_good

    def _note_foreign(
        self,
        known: KnownSchema,
        subject: str,
        places: Iterable[int],
        schemas: KnownSchemas,
        findings: Findings,
    ) -> None:
        if not schemas.is_denied((known.id, subject)):
            # It may have been registered since the id was looked up.
            findings.wanted.add((known.id, subject))
            return
        error = BadPayloadError(f"the schema {known.id} is not registered under the subject {subject!r}")
        self._note(findings, places, error)

    def _note(self, findings: Findings, places: Iterable[int], error: BadPayloadError) -> None:
        reason = f"{'key' if self._is_key else 'value'}: {error}"
        for place in places:
            findings.faults.setdefault(place, reason)


def _unusable(known: KnownSchema) -> BadPayloadError:
    return BadPayloadError(f"the schema {known.id} cannot be used for checks: {known.problem}")
