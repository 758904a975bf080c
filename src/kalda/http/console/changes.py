"""Asks before anything is changed: a form, a page that shows what will happen, then the change and its audit.

A `ChangeForm` says which fields a change has and makes a `Change` of what was entered. Nothing is changed by
its first sending: it shows the change with its command. The page with the question carries a seal over the
fields and the question's path, so that what is confirmed is what was shown.
"""

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.responses import Response

from kalda.clients.errors import ClientError
from kalda.http.console.sealing import USED_SECONDS
from kalda.http.console.visits import Notice, Visit
from kalda.http.errors import HttpError, http_error_of
from kalda.security.audit import DENIED, FAILURE, SUCCESS

_APPROVAL: Final = "approval"
_TABLE_ROWS_MAX: Final = 100

Fields = Mapping[str, str]


class FormError(Exception):
    """The entered values are not allowed; the message is for the visitor."""

    def __init__(self, message: str, field_name: str = "") -> None:
        super().__init__(message)
        self.field_name: Final = field_name


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form."""

    name: str
    label: str
    kind: str = "text"
    """A type of HTML's ``input``, or ``area``, ``select``, ``check``, ``hidden``."""
    value: str = ""
    hint: str = ""
    placeholder: str = ""
    options: Sequence[tuple[str, str]] = ()
    """Of a select, the values and their texts."""
    is_required: bool = False
    is_wide: bool = False
    rows: int = 4
    least: int = 0


@dataclass(frozen=True, slots=True)
class FactTable:
    """The rows that a confirmation page shows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()
    more: int = 0
    """How many further rows there are."""

    @classmethod
    def of(
        cls, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()
    ) -> "FactTable":
        """Return a table of the first rows, with the number of those left out."""
        return cls(columns, rows[:_TABLE_ROWS_MAX], frozenset(numeric), max(0, len(rows) - _TABLE_ROWS_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that is made when the visitor confirms it."""

    question: str
    button: str
    command: str
    perform: Callable[[], Awaitable[str]]
    """Does it and returns what was done, as a sentence."""
    done: str
    """The path of the page to go to then."""
    back: str
    """The path of the page to go to instead."""
    operation: str
    """For the audit log, e.g. ``DeleteTopics``."""
    resource: str
    """For the audit log, e.g. ``Topic:flights``."""
    facts: Sequence[tuple[str, str]] = ()
    table: FactTable | None = None
    warning: str = ""
    is_dangerous: bool = False
    """Whether something is lost by it."""
    word: str = ""
    """What has to be typed to confirm."""
    pinned: Fields = field(default_factory=dict)
    """Further fields of the confirmation, for what may be different by then, such as the end of a log: the
    plan that is made of them again is the one that was shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a change, filled in."""

    title: str
    path: str
    back: str
    section: str
    button: str = "Continue"
    fields: Sequence[Field] = ()
    intro: str = ""
    trail: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """A change with its form.

    Args:
        show: Returns the form with the given values; of an unsent form, those of the address.
        plan: Returns the change; raises `FormError`.
        secret: The name of a field that only the question asks for, so that no page ever holds its value.
    """

    show: Callable[[Visit, Fields], Awaitable[Form]]
    plan: Callable[[Visit, Fields], Awaitable[Change]]
    secret: str = ""

    async def get(self, visit: Visit) -> Response:
        """Show the form."""
        return await self._form_page(visit, visit.parameters, None)

    async def post(self, visit: Visit) -> Response:
        """Show the confirmation page, or make the confirmed change."""
        entered = await visit.form()
        if not visit.may_change:
            visit.audit(DENIED, request=visit.request.url.path)
            raise HttpError(403, visit.why_read_only)
        approval = entered.pop("confirmed", "")
        word = entered.pop("word", None)
        secret = {self.secret: entered.pop(self.secret, "")} if self.secret else {}
        try:
            change = await self.plan(visit, {**entered, **secret})
        except FormError as error:
            return await self._form_page(visit, entered, error)
        except ClientError as error:
            return await self._form_page(visit, entered, FormError(str(error)))
        if not approval:
            return await self._question(visit, entered, change, "")
        if not _is_approved(visit, approval, entered):
            raise HttpError(
                403,
                "what was confirmed is not what was shown, or the page was open for too long; send the form "
                "again",
            )
        if change.word and word != change.word:
            return await self._question(
                visit, entered, change, f"That is not {change.word}; nothing was changed."
            )
        visit.may_have_changed = True
        if not visit.pages.seal.is_first_use(approval, time.time()):
            # The button was pressed twice, or in a second window, or the browser sent the form again.
            raise HttpError(
                409, "this was confirmed already; look at what it changed before you send the form again"
            )
        return await self._perform(visit, entered, change)

    async def _perform(self, visit: Visit, entered: Fields, change: Change) -> Response:
        try:
            done = await change.perform()
        except (ClientError, HttpError) as error:
            http_error = error if isinstance(error, HttpError) else http_error_of(error)
            outcome = DENIED if http_error.status in (401, 403) else FAILURE
            visit.audit(outcome, request=change.operation, resource=change.resource, reason=str(error))
            return await self._question(visit, entered, change, f"It failed: {http_error.message}")
        visit.audit(SUCCESS, request=change.operation, resource=change.resource)
        return visit.redirect(change.done, Notice(done, change.command))

    async def _question(self, visit: Visit, entered: Fields, change: Change, error: str) -> Response:
        form = await self.show(visit, entered)
        entered = {**entered, **change.pinned}
        document = {"fields": _digest(visit, entered)}
        approval = visit.pages.seal.seal(_APPROVAL, document, time.time() + USED_SECONDS)
        return visit.page(
            "confirm.html",
            title=form.title,
            section=form.section,
            command=change.command,
            trail=form.trail,
            status=422 if error else 200,
            change=change,
            path=form.path,
            values=list(entered.items()),
            approval=approval,
            secret=self.secret,
            error=error,
        )

    async def _form_page(self, visit: Visit, values: Fields, error: FormError | None) -> Response:
        form = await self.show(visit, values)
        return visit.page(
            "form.html",
            title=form.title,
            section=form.section,
            trail=form.trail,
            status=200 if error is None else 422,
            form=form,
            error=None if error is None else str(error),
            wrong=None if error is None else error.field_name,
        )


def _digest(visit: Visit, entered: Fields) -> str:
    content = [visit.request.url.path, visit.user, sorted(entered.items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _is_approved(visit: Visit, approval: str, entered: Fields) -> bool:
    opened = visit.pages.seal.open(_APPROVAL, approval, time.time())
    return opened is not None and opened["fields"] == _digest(visit, entered)


def integer_of(values: Fields, name: str, label: str, least: int, most: int) -> int:
    """Return the number that a field has.

    Raises:
        FormError: it has none, or one outside the bounds.
    """
    text = values.get(name, "").strip()
    try:
        number = int(text)
    except ValueError:
        raise FormError(f"{label}: {text[:40]!r} is no number; it takes {least} to {most}", name) from None
    if not least <= number <= most:
        raise FormError(f"{label}: {number} is not allowed; it takes {least} to {most}", name)
    return number
