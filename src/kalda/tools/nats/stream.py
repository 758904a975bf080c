"""The commands `kalda nats stream`: streams of JetStream and their messages."""

import base64
import binascii
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.option_types import EnumType, Integer
from kalda.command.output import Json
from kalda.command.tables import Cell, Table
from kalda.tools.nats.connecting import server_options, shown_headers
from kalda.tools.nats.jetstream_api import Document, jetstream, part
from kalda.tools.nats.jetstream_options import (
    Discard,
    Duration,
    Name,
    Retention,
    Storage,
    confirm,
    given,
    limit_text,
    read_config,
    time_text,
)

Decorated = TypeVar("Decorated", bound=Callable[..., object])

stream = noun("List, create, change and purge streams of JetStream; get their messages.")

_name = click.argument("name", metavar="STREAM", type=Name())
_yes = click.option("--yes", "-y", "--force", "-f", "yes", is_flag=True, help="Do not ask.")
_LIMIT: Final = Integer(-1)


def _config_options(function: Decorated) -> Decorated:
    for option in (
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A configuration in JSON; options win over it.",
        ),
        click.option("--no-ack", is_flag=True, default=None, help="Do not acknowledge messages."),
        click.option("--allow-direct", is_flag=True, default=None, help="Serve DIRECT.GET."),
        click.option("--allow-rollup", is_flag=True, default=None, help="Take the header Nats-Rollup."),
        click.option("--deny-purge", is_flag=True, default=None, help="Refuse purges."),
        click.option("--deny-delete", is_flag=True, default=None, help="Refuse to remove messages."),
        click.option("--dupe-window", type=Duration(), help="For how long message ids are remembered."),
        click.option("--max-consumers", type=_LIMIT, metavar="N", help="Consumers, -1 without a limit."),
        click.option("--max-msg-size", type=_LIMIT, metavar="BYTES", help="The largest message."),
        click.option("--max-age", type=Duration(), help="How old a message becomes."),
        click.option("--max-bytes", type=_LIMIT, metavar="BYTES", help="Bytes of all messages."),
        click.option(
            "--max-msgs-per-subject", type=_LIMIT, metavar="N", help="Messages of one subject that are kept."
        ),
        click.option("--max-msgs", type=_LIMIT, metavar="N", help="Messages that are kept."),
        click.option("--discard", type=EnumType(Discard), help="What goes at a limit: old messages or new."),
        click.option("--replicas", type=Integer(1), metavar="N", help="Brokers that have the messages."),
        click.option("--description", metavar="TEXT", help="A text about the stream."),
        click.option(
            "--subjects", multiple=True, metavar="SUBJECT,…", help="The subjects of the stream; repeatable."
        ),
    ):
        function = option(function)
    return function


def _config(options: Mapping[str, object]) -> dict[str, Json]:
    """Return the fields of a configuration that options give."""
    subjects = options.get("subjects")
    assert isinstance(subjects, tuple), "--subjects is repeatable"
    values = {
        "subjects": tuple(each.strip() for text in subjects for each in str(text).split(",") if each.strip()),
        "description": options.get("description"),
        "num_replicas": options.get("replicas"),
        "storage": options.get("storage"),
        "retention": options.get("retention"),
        "discard": options.get("discard"),
        "max_msgs": options.get("max_msgs"),
        "max_msgs_per_subject": options.get("max_msgs_per_subject"),
        "max_bytes": options.get("max_bytes"),
        "max_age": options.get("max_age"),
        "max_msg_size": options.get("max_msg_size"),
        "max_consumers": options.get("max_consumers"),
        "duplicate_window": options.get("dupe_window"),
        "deny_delete": options.get("deny_delete"),
        "deny_purge": options.get("deny_purge"),
        "allow_rollup_hdrs": options.get("allow_rollup"),
        "allow_direct": options.get("allow_direct"),
        "no_ack": options.get("no_ack"),
    }
    path = options.get("config")
    assert path is None or isinstance(path, Path), "--config is a path"
    return {**read_config(path), **given(values)}


@command("ls", stream, connects=False)
@click.option("--subject", metavar="SUBJECT", help="Only streams that have the subject.")
@click.option("--names", "-n", is_flag=True, help="Print the names only.")
@server_options
async def ls(
    tool: Tool, subject: str | None, names: bool, server: str, tls_ca: str | None, timeout_ms: int
) -> None:
    """List the streams."""
    body: dict[str, Json] = {} if subject is None else {"subject": subject}
    async with jetstream(server, tls_ca, timeout_ms) as api:
        if names:
            found = await api.pages("STREAM.NAMES", "streams", body)
            tool.output.result({"streams": found}, *map(str, found))
            return
        found = await api.pages("STREAM.LIST", "streams", body)
    rows: list[tuple[Cell, ...]] = [
        (
            str(part(each, "config").get("name")),
            ",".join(map(str, _sequence(part(each, "config").get("subjects")))),
            *(
                _count(part(each, "state").get(name))
                for name in ("messages", "bytes", "consumer_count", "last_seq")
            ),
        )
        for each in found
    ]
    tool.output.result(
        {"streams": found},
        Table(
            ("STREAM", "SUBJECTS", "MESSAGES", "BYTES", "CONSUMERS", "LAST-SEQUENCE"),
            sorted(rows, key=str),
            empty="There are no such streams.",
        ),
    )


@command("info", stream, connects=False)
@_name
@server_options
async def info(tool: Tool, name: str, server: str, tls_ca: str | None, timeout_ms: int) -> None:
    """Show the configuration and the state of a stream."""
    async with jetstream(server, tls_ca, timeout_ms) as api:
        _show(tool, await api.request(f"STREAM.INFO.{name}"))


@command("create", stream, connects=False)
@_name
@click.option("--storage", type=EnumType(Storage), help="Where the messages are kept; brokers have files.")
@click.option(
    "--retention", type=EnumType(Retention), help="What removes messages; brokers serve limits only."
)
@_config_options
@server_options
async def create(
    tool: Tool, /, name: str, server: str, tls_ca: str | None, timeout_ms: int, **options: object
) -> None:
    """Create a stream; it exists afterwards, too, if it existed with the same configuration."""
    body = {**_config(options), "name": name}
    if not body.get("subjects"):
        body["subjects"] = [name]
    async with jetstream(server, tls_ca, timeout_ms) as api:
        _show(tool, await api.request(f"STREAM.CREATE.{name}", body))


@command("edit", stream, connects=False)
@_name
@_config_options
@server_options
async def edit(
    tool: Tool, /, name: str, server: str, tls_ca: str | None, timeout_ms: int, **options: object
) -> None:
    """Change the configuration of a stream; what no option names stays."""
    changes = _config(options)
    if not changes:
        raise ToolUsageError("nothing is to be changed: give an option, such as --max-age 7d")
    async with jetstream(server, tls_ca, timeout_ms) as api:
        before = part(await api.request(f"STREAM.INFO.{name}"), "config")
        _show(tool, await api.request(f"STREAM.UPDATE.{name}", {**before, **changes, "name": name}))


@command("rm", stream, connects=False)
@_name
@_yes
@server_options
async def rm(tool: Tool, name: str, yes: bool, server: str, tls_ca: str | None, timeout_ms: int) -> None:
    """Delete a stream with its messages and consumers."""
    confirm(f"Delete the stream {name} with its messages?", is_asked=not yes)
    async with jetstream(server, tls_ca, timeout_ms) as api:
        await api.request(f"STREAM.DELETE.{name}")
    tool.output.result({"stream": name, "deleted": True}, f"deleted stream {name}")


@command("purge", stream, connects=False)
@_name
@click.option("--subject", metavar="SUBJECT", help="Only messages of the subject, which may have wildcards.")
@click.option("--seq", type=Integer(1), metavar="N", help="Only messages before this sequence.")
@click.option("--keep", type=Integer(1), metavar="N", help="Leave so many messages, the last ones.")
@_yes
@server_options
async def purge(
    tool: Tool,
    name: str,
    subject: str | None,
    seq: int | None,
    keep: int | None,
    yes: bool,
    server: str,
    tls_ca: str | None,
    timeout_ms: int,
) -> None:
    """Remove messages of a stream, all of them without an option."""
    if seq is not None and keep is not None:
        raise ToolUsageError("--seq and --keep exclude each other")
    confirm(f"Remove messages of the stream {name}?", is_asked=not yes)
    body = given({"filter": subject, "seq": seq, "keep": keep})
    async with jetstream(server, tls_ca, timeout_ms) as api:
        purged = (await api.request(f"STREAM.PURGE.{name}", body)).get("purged")
    tool.output.result({"stream": name, "purged": purged}, f"removed {purged} messages of stream {name}")


@command("get", stream, connects=False)
@_name
@click.argument("sequence", type=Integer(1), required=False)
@click.option(
    "--last-for", "-S", metavar="SUBJECT", help="The last message of a subject, which may have wildcards."
)
@server_options
async def get(
    tool: Tool,
    name: str,
    sequence: int | None,
    last_for: str | None,
    server: str,
    tls_ca: str | None,
    timeout_ms: int,
) -> None:
    """Print one message: that with SEQUENCE, or the last one of a subject."""
    if (sequence is None) is (last_for is None):
        raise ToolUsageError("give a sequence or --last-for SUBJECT")
    body = given({"seq": sequence, "last_by_subj": last_for})
    async with jetstream(server, tls_ca, timeout_ms) as api:
        found = part(await api.request(f"STREAM.MSG.GET.{name}", body), "message")
    payload = _decoded(found.get("data")).decode(errors="replace")
    document = {
        "subject": found.get("subject"),
        "seq": found.get("seq"),
        "time": found.get("time"),
        "headers": shown_headers(_decoded(found.get("hdrs"))),
        "payload": payload,
    }
    tool.output.item(document, f"{document['subject']}\t{payload}")


@command("rmm", stream, connects=False)
@_name
@click.argument("sequence", type=Integer(1))
@click.option(
    "--erase", is_flag=True, help="Overwrite the message as well, which nats-server does and brokers refuse."
)
@_yes
@server_options
async def rmm(
    tool: Tool,
    name: str,
    sequence: int,
    erase: bool,
    yes: bool,
    server: str,
    tls_ca: str | None,
    timeout_ms: int,
) -> None:
    """Remove the message with SEQUENCE."""
    confirm(f"Remove message {sequence} of the stream {name}?", is_asked=not yes)
    async with jetstream(server, tls_ca, timeout_ms) as api:
        await api.request(f"STREAM.MSG.DELETE.{name}", {"seq": sequence, "no_erase": not erase})
    tool.output.result(
        {"stream": name, "seq": sequence, "removed": True}, f"removed message {sequence} of stream {name}"
    )


def _show(tool: Tool, found: Document) -> None:
    config, state = part(found, "config"), part(found, "state")
    rows: list[tuple[str, Cell]] = [
        ("subjects", ",".join(map(str, _sequence(config.get("subjects"))))),
        ("description", str(config.get("description") or "-")),
        ("replicas", _count(config.get("num_replicas"))),
        ("storage", str(config.get("storage"))),
        ("retention", str(config.get("retention"))),
        ("discard", str(config.get("discard"))),
        *(
            (name.replace("_", "-"), limit_text(config.get(name)))
            for name in ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")
        ),
        ("max-age", time_text(config.get("max_age")) if config.get("max_age") else "unlimited"),
        ("dupe-window", time_text(config.get("duplicate_window"))),
        ("created", str(found.get("created"))),
        *(
            (name.replace("_", "-"), _count(state.get(name)))
            for name in ("messages", "bytes", "first_seq", "last_seq", "num_subjects", "num_deleted")
        ),
        ("consumers", _count(state.get("consumer_count"))),
    ]
    tool.output.result(found, Table((f"STREAM {config.get('name')}", "VALUE"), rows))


def _sequence(value: Json) -> list[Json]:
    return list(value) if isinstance(value, list) else []


def _count(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _decoded(value: Json) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except binascii.Error:
        return b""
