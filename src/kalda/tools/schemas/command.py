"""`kalda schemas`: list, describe, register, test, delete, export and import schemas of a registry."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.tables import Table
from kalda.common.log_text import counted
from kalda.tools.schemas.registry import (
    Registry,
    open_registry,
    read_schema,
    registry_options,
    shown_schema,
    subject_path,
)

schemas = noun("List, register, test and copy schemas of a registry.")

TYPES: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
"""The type of a schema by the ending of its file."""

Options = ParamSpec("Options")
_SchemaFunction = Callable[Concatenate[Tool, Registry, Options], None]

_file_option = click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The schema; .avsc, .json or .proto says its type.",
)
_type_option = click.option(
    "--type",
    "schema_type",
    type=click.Choice(tuple(TYPES.values()), case_sensitive=False),
    help="AVRO, JSON or PROTOBUF, where the file's name does not say it.",
)
_reference_option = click.option(
    "--reference",
    multiple=True,
    metavar="NAME=SUBJECT:VERSION",
    help="A schema that this one uses, by the name that it uses; repeatable.",
)


def of_registry(function: _SchemaFunction[Options]) -> Callable[Concatenate[Tool, Options], None]:
    """Return a command's function that gets a registry from the options of one."""

    @registry_options
    @wraps(function)
    def run(
        tool: Tool,
        registry: str | None,
        registry_config: Path | None,
        registry_property: tuple[str, ...],
        **options: Any,
    ) -> None:
        function(tool, open_registry(registry, registry_config, registry_property, os.environ), **options)  # type: ignore[call-arg]

    return run


@command("list", schemas, connects=False)
@of_registry
@click.option("--prefix", default="", metavar="TEXT", help="Only subjects whose names begin so.")
@click.option("--deleted", is_flag=True, help="With those that are deleted and not removed for good.")
def list_schemas(tool: Tool, registry: Registry, prefix: str, deleted: bool) -> None:
    """List subjects with their newest version."""
    found = []
    for subject in registry.subjects(prefix, deleted=deleted):
        numbers = registry.versions(subject, deleted=deleted)
        newest = registry.version(subject, numbers[-1], deleted=deleted)
        found.append((subject, len(numbers), newest))
    tool.output.result(
        {
            "subjects": [
                {
                    "subject": subject,
                    "versions": count,
                    "latest": each.version,
                    "id": each.id,
                    "type": each.type,
                }
                for subject, count, each in found
            ]
        },
        Table(
            ("SUBJECT", "VERSIONS", "LATEST", "ID", "TYPE"),
            [(subject, count, each.version, each.id, each.type) for subject, count, each in found],
            empty="The registry has no subject.",
        ),
    )


@command("describe", schemas, connects=False)
@of_registry
@click.argument("subject", required=False)
@click.option("--version", default="latest", show_default=True, metavar="NUMBER", help="A version.")
@click.option(
    "--id", "schema_id", type=int, metavar="NUMBER", help="The schema of an id, in place of a subject."
)
def describe(
    tool: Tool, registry: Registry, subject: str | None, version: str, schema_id: int | None
) -> None:
    """Describe a version of a subject, or the schema of an id, with its text."""
    if (subject is None) == (schema_id is None):
        raise ToolUsageError("name a subject, or an id by --id")
    if subject is None:
        document = registry.ask("GET", f"/schemas/ids/{schema_id}")
        users = registry.ask("GET", f"/schemas/ids/{schema_id}/versions")
        rows = [(each["subject"], each["version"]) for each in users]
        tool.output.result(
            {"id": schema_id, **document, "versions": users},
            Table(("SUBJECT", "VERSION"), rows, empty="No subject has it."),
            *shown_schema(str(document["schema"])).splitlines(),
        )
        return
    found = registry.version(subject, version)
    level = registry.level(subject) or registry.level()
    tool.output.result(
        {**found.document, "compatibilityLevel": level},
        Table(
            ("SUBJECT", "VERSION", "ID", "TYPE", "COMPATIBILITY", "REFERENCES"),
            [
                (
                    found.subject,
                    found.version,
                    found.id,
                    found.type,
                    level or "",
                    ", ".join(f"{each['subject']}:{each['version']}" for each in found.references),
                )
            ],
        ),
        *shown_schema(str(found.document["schema"])).splitlines(),
    )


@command("register", schemas, connects=False)
@of_registry
@click.argument("subject")
@_file_option
@_type_option
@_reference_option
@click.option("--normalize", is_flag=True, help="Compare and store it in the registry's normal form.")
def register(
    tool: Tool,
    registry: Registry,
    subject: str,
    path: Path,
    schema_type: str | None,
    reference: tuple[str, ...],
    normalize: bool,
) -> None:
    """Register a schema as the newest version of a subject; one that it has already keeps its id."""
    body = _body(path, schema_type, reference)
    query = "?normalize=true" if normalize else ""
    answer = registry.ask("POST", f"{subject_path(subject)}/versions{query}", body)
    found = registry.ask("POST", f"{subject_path(subject)}{query}", body)
    tool.output.result(
        {"subject": subject, "id": answer["id"], "version": found["version"]},
        f"{subject} has the schema as version {found['version']} with the id {answer['id']}.",
    )


@command("test", schemas, connects=False)
@of_registry
@click.argument("subject")
@_file_option
@_type_option
@_reference_option
@click.option(
    "--version",
    metavar="NUMBER",
    help="Compare with this version, or latest; by default with those "
    "that the subject's compatibility level names.",
)
def test_schema(
    tool: Tool,
    registry: Registry,
    subject: str,
    path: Path,
    schema_type: str | None,
    reference: tuple[str, ...],
    version: str | None,
) -> None:
    """Test whether a schema is compatible with a subject's; exit with 1 if it is not."""
    place = f"/compatibility{subject_path(subject)}/versions"
    query = "?verbose=true"
    body = _body(path, schema_type, reference)
    answer = registry.ask("POST", f"{place}/{version}{query}" if version else f"{place}{query}", body)
    messages = [str(each) for each in answer.get("messages") or ()]
    is_compatible = bool(answer["is_compatible"])
    tool.output.result(
        {"subject": subject, "is_compatible": is_compatible, "messages": messages},
        *messages,
        f"The schema is {'' if is_compatible else 'not '}compatible with {subject}.",
    )
    if not is_compatible:
        raise ToolError(f"the schema {path} is not compatible with {subject}")


@command("delete", schemas, connects=False)
@of_registry
@click.argument("subject")
@click.option("--version", metavar="NUMBER", help="Only this version, or latest; all without it.")
@click.option(
    "--permanent", is_flag=True, help="Remove for good what was deleted before; its ids stay taken."
)
def delete(tool: Tool, registry: Registry, subject: str, version: str | None, permanent: bool) -> None:
    """Delete a subject, or one of its versions. Values that name its schemas stay readable."""
    place = subject_path(subject) if version is None else f"{subject_path(subject)}/versions/{version}"
    answer = registry.ask("DELETE", f"{place}?permanent=true" if permanent else place)
    numbers = [answer] if isinstance(answer, int) else list(answer)
    tool.output.result(
        {"subject": subject, "versions": numbers, "permanent": permanent},
        f"{subject}: {'removed' if permanent else 'deleted'} {', '.join(map(str, numbers)) or 'nothing'}.",
    )


@command("export", schemas, connects=False)
@of_registry
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default=Path("-"))
@click.option("--prefix", default="", metavar="TEXT", help="Only subjects whose names begin so.")
@click.option("--deleted", is_flag=True, help="With versions that are deleted and not removed for good.")
def export(tool: Tool, registry: Registry, file: Path, prefix: str, deleted: bool) -> None:
    """Write all versions to a file, or to stdout: a JSON object on each line, with ids and references."""
    from kalda.tools.schemas.copies import exported

    lines = exported(registry, prefix, deleted=deleted)
    if file == Path("-"):
        for line in lines:
            tool.output.write_bytes(f"{line}\n".encode())
        return
    try:
        with file.open("w", encoding="utf-8") as stream:
            count = sum(stream.write(f"{line}\n") > 0 for line in lines)
    except OSError as error:
        raise ToolError(f"{file} cannot be written: {error}") from None
    tool.output.result({"file": str(file), "lines": count}, f"Wrote {counted(count, 'line')} to {file}.")


@command("import", schemas, connects=False)
@of_registry
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would be registered.")
def import_schemas(tool: Tool, registry: Registry, file: Path, dry_run: bool) -> None:
    """Register what an export wrote, with the same ids, versions and levels; what is there is left alone."""
    from kalda.tools.schemas.copies import import_all, read_export

    outcome = import_all(registry, read_export(file), dry_run=dry_run)
    verb = "Would register" if dry_run else "Registered"
    tool.output.result(
        {
            "registered": outcome.registered,
            "present": outcome.present,
            "levels": outcome.levels,
            "dry_run": dry_run,
        },
        f"{verb} {counted(outcome.registered, 'version')} and "
        f"{counted(outcome.levels, 'compatibility level')}; already there: "
        f"{counted(outcome.present, 'version')}.",
    )


def _body(path: Path, schema_type: str | None, references: tuple[str, ...]) -> dict[str, object]:
    kind = schema_type or TYPES.get(path.suffix)
    if kind is None:
        raise ToolUsageError(
            f"{path} does not say the type of its schema; give --type, or name it {', '.join(TYPES)}"
        )
    body: dict[str, object] = {"schema": read_schema(path)}
    if kind.upper() != "AVRO":
        body["schemaType"] = kind.upper()
    if references:
        body["references"] = [_reference(text) for text in references]
    return body


def _reference(text: str) -> dict[str, object]:
    # Both names may contain what separates them.
    name, _, place = text.rpartition("=")
    subject, _, version = place.rpartition(":")
    if not name or not subject or not version.lstrip("-").isdigit():
        raise ToolUsageError(f"--reference {text}: expected NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}
