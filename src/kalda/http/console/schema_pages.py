"""Serves the pages of the schema registry: subjects, and two versions side by side."""

from typing import Final

from starlette.responses import Response

from kalda.http.console import command_lines
from kalda.http.console.listing_pages import Part, listing_page
from kalda.http.console.listings import Cell, Column, Row, listing
from kalda.http.console.reading import Reading
from kalda.http.console.schema_views import compared, readable_text
from kalda.http.console.texts import UNKNOWN
from kalda.http.console.visits import Visit, path_of
from kalda.http.errors import HttpError
from kalda.http.registry.authorization import Authorizer
from kalda.http.registry.registry import Registry

_COLUMNS: Final = (
    Column("subject", "Subject"),
    Column("type", "Type"),
    Column("versions", "Versions", is_number=True),
    Column("id", "Id of the latest", is_number=True, is_secondary=True),
    Column("compatibility", "Compatibility", is_secondary=True),
)


async def schemas(visit: Visit, reading: Reading) -> Response:
    """List the subjects that the visitor may read."""
    registry, authorizer = await _registry(visit)
    state = registry.state
    readable = await authorizer.readable(visit.caller, state.subjects_in(None))
    rows = []
    for subject in readable:
        versions = [each for each in state.versions(subject) if not each.is_deleted]
        latest = versions[-1] if versions else None
        rows.append(
            Row(
                [
                    Cell(subject, path_of("schemas", subject)),
                    Cell("deleted" if latest is None else latest.content.schema_type.title()),
                    Cell(str(len(versions)), value=len(versions)),
                    Cell(
                        UNKNOWN if latest is None else str(latest.id),
                        value=None if latest is None else latest.id,
                    ),
                    Cell(_level(registry, subject)),
                ]
            )
        )
    table = listing(
        "/schemas",
        visit.parameters,
        _COLUMNS,
        rows,
        one="subject",
        many="subjects",
        empty=("No subjects", "A serializer registers the first one, or a POST to /subjects/NAME/versions."),
    )
    return listing_page(
        visit,
        [Part(table)],
        title="Schemas",
        section="Schemas",
        command=command_lines.line("schemas", "list"),
    )


async def schema(visit: Visit, reading: Reading) -> Response:
    """Show a version of a subject beside another one."""
    subject = visit.request.path_params["subject"]
    registry, authorizer = await _registry(visit)
    if not await authorizer.readable(visit.caller, [subject]):
        raise HttpError(404, f"there is no subject {subject}, or you may not read it")
    versions = registry.state.versions(subject)
    if not versions:
        raise HttpError(404, f"there is no subject {subject}")
    by_number = {each.number: each for each in versions}
    shown = by_number.get(_number(visit.parameter("version"))) or versions[-1]
    earlier = [each for each in versions if each.number < shown.number]
    before = by_number.get(_number(visit.parameter("against"))) or (earlier[-1] if earlier else None)
    text = readable_text(shown.content.text)
    return visit.page(
        "schema.html",
        title=subject,
        section="Schemas",
        trail=(("Schemas", "/schemas"),),
        command=command_lines.line("schemas", "describe", subject),
        versions=versions,
        shown=shown,
        before=before,
        text=text,
        level=_level(registry, subject),
        lines=None if before is None else compared(readable_text(before.content.text), text),
        path=path_of("schemas", subject),
    )


async def _registry(visit: Visit) -> tuple[Registry, Authorizer]:
    await visit.caller.authenticate()
    if not visit.has_registry:
        raise HttpError(404, "this process of kalda http serves no registry")
    return visit.services.registry, visit.services.authorizer


def _level(registry: Registry, subject: str) -> str:
    return str(registry.config(subject).get("compatibilityLevel") or UNKNOWN)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
