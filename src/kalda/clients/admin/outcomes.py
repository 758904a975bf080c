"""Holds what admin calls return: `Outcomes`, a result or error for each thing, and `Listing`.

Values only. An error never hides: whatever reads a failed thing as if it had succeeded gets its exception.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from kalda.clients.reprs import html_table, short
from kalda.common.public import public
from kalda.net.client.client_errors import ClientError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


@public
class Outcomes(Mapping[K, V], Generic[K, V]):
    """A mapping from each thing that a call was given to its result; reading one that failed raises its
    error. There are errors only if the call was made with ``outcomes=True``.

    >>> outcomes = Outcomes({"flights": 3}, {"secret": ClientError("not authorised")})
    >>> outcomes["flights"], outcomes.results, list(outcomes.errors)
    (3, {'flights': 3}, ['secret'])

    Iteration and `len` cover the failed ones too, so `dict(outcomes)` raises when there is an error.
    """

    __slots__ = ("errors", "results")

    def __init__(self, results: Mapping[K, V], errors: Mapping[K, ClientError] | None = None) -> None:
        self.results: Final[dict[K, V]] = dict(results)
        """The results of the things that succeeded."""
        self.errors: Final[dict[K, ClientError]] = dict(errors or {})
        """The errors of the things that failed."""

    def __getitem__(self, key: K) -> V:
        error = self.errors.get(key)
        if error is not None:
            raise error
        return self.results[key]

    def __iter__(self) -> Iterator[K]:
        yield from self.results
        yield from self.errors

    def __len__(self) -> int:
        return len(self.results) + len(self.errors)

    def __contains__(self, key: object) -> bool:
        return key in self.results or key in self.errors

    def __repr__(self) -> str:
        return f"Outcomes(results={_shown(self.results)}, errors={_shown(self.errors)})"

    def _repr_html_(self) -> str:
        rows = [*self.results.items(), *((key, str(error)) for key, error in self.errors.items())]
        return html_table(("", "Result or error"), [(str(key), found) for key, found in rows])

    def raise_for_errors(self) -> None:
        """Raise the first error, with the others as notes; do nothing when all succeeded.

        A call without ``outcomes=True`` has done so already. Results that are `Outcomes` themselves, such as
        the partitions of a group, count with their errors.

        Raises:
            ClientError: at least one thing failed; its `succeeded` and `failed` hold the results and errors.
        """
        errors = list(self._all_errors())
        if not errors:
            return
        failed: dict[object, ClientError] = {}
        failed.update(self.errors.items())
        succeeded: dict[object, object] = {}
        for key, result in self.results.items():
            inner = list(result._all_errors()) if isinstance(result, Outcomes) else []
            if inner:
                failed[key] = inner[0]
            else:
                succeeded[key] = result
        errors[0].succeeded, errors[0].failed = succeeded, failed
        _raise_first(errors, [str(key) for key in succeeded])

    def _all_errors(self) -> Iterator[ClientError]:
        yield from self.errors.values()
        for result in self.results.values():
            if isinstance(result, Outcomes):
                yield from result._all_errors()


@public
class Listing(Generic[T]):
    """The combined listings of all brokers, and the errors of brokers that did not respond.

    `all()` returns a complete list or raises; `results` is what the other brokers listed.
    """

    __slots__ = ("errors", "results")

    def __init__(self, results: Iterable[T], errors: Mapping[int, ClientError] | None = None) -> None:
        self.results: Final[list[T]] = list(results)
        """What the brokers that answered list."""
        self.errors: Final[dict[int, ClientError]] = dict(errors or {})
        """The errors of the other brokers, by broker id."""

    def all(self) -> list[T]:
        """Return the complete list.

        Raises:
            ClientError: a broker did not answer, so the list could lack its part.
        """
        _raise_first(self.errors.values())
        return self.results

    def __repr__(self) -> str:
        return f"Listing(results={self.results!r}, errors={self.errors!r})"

    def _repr_html_(self) -> str:
        rows = [("", each) for each in self.results]
        return html_table(
            ("Broker", "Result or error"),
            [*rows, *((str(broker), str(error)) for broker, error in self.errors.items())],
        )


def _shown(found: Mapping[Any, object]) -> str:
    return f"{{{', '.join(f'{key!r}: {short(value)}' for key, value in found.items())}}}"


_NOTES_MAX: Final = 10
"""Errors and names that an error's notes hold; a failure of thousands of partitions must stay readable."""


def _raise_first(errors: Iterable[ClientError], succeeded: Sequence[str] = ()) -> None:
    """Raise the first error with the next ones and what succeeded as notes; do nothing without errors."""
    each = list(errors)
    if not each:
        return
    first, *others = each
    for other in others[:_NOTES_MAX]:
        _add_note(first, f"also failed: {other}")
    if len(others) > _NOTES_MAX:
        _add_note(first, f"and {len(others) - _NOTES_MAX} more failed")
    if succeeded:
        more = f" and {len(succeeded) - _NOTES_MAX} more" if len(succeeded) > _NOTES_MAX else ""
        _add_note(first, f"succeeded: {', '.join(succeeded[:_NOTES_MAX])}{more}")
    raise first


def _add_note(error: ClientError, note: str) -> None:
    # The same outcome may be raised several times.
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
