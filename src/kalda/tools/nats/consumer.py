"""The commands `kalda nats consumer`: consumers of JetStream's streams, and their messages."""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolError
from kalda.command.option_types import EnumType, Integer
from kalda.command.output import Json
from kalda.command.tables import Cell, Table
from kalda.command.values import parse_time_ms
from kalda.nats.jetstream.fields import time_text as moment_text
from kalda.tools.nats.connecting import server_options, show, within
from kalda.tools.nats.jetstream_api import Document, JetStreamApi, jetstream, part
from kalda.tools.nats.jetstream_options import (
    NS,
    AckPolicy,
    Duration,
    Name,
    Replay,
    confirm,
    given,
    limit_text,
    read_config,
    time_text,
)

consumer = noun("List, create and remove consumers of streams; get the next messages of one.")

_stream = click.argument("stream", type=Name())
_name = click.argument("name", metavar="CONSUMER", type=Name())
_COUNT_MAX: Final = 100_000
_NO_MESSAGES: Final = re.compile(rb"NATS/1.0 (?:404|408)\b")
_STATUS: Final = re.compile(rb"NATS/1.0 (\d{3}) ?([^\r]*)\r\n")
_POLICIES: Final = {"all": "all", "new": "new", "last": "last", "subject": "last_per_subject"}


@command("ls", consumer, connects=False)
@_stream
@click.option("--names", "-n", is_flag=True, help="Print the names only.")
@server_options
async def ls(tool: Tool, stream: str, names: bool, server: str, tls_ca: str | None, timeout_ms: int) -> None:
    """List the consumers of a stream."""
    async with jetstream(server, tls_ca, timeout_ms) as api:
        if names:
            found = await api.pages(f"CONSUMER.NAMES.{stream}", "consumers")
            tool.output.result({"consumers": found}, *map(str, found))
            return
        found = await api.pages(f"CONSUMER.LIST.{stream}", "consumers")
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.get("name")),
            "push" if part(each, "config").get("deliver_subject") else "pull",
            *(
                _count(each.get(name))
                for name in ("num_ack_pending", "num_redelivered", "num_waiting", "num_pending")
            ),
            _count(part(each, "ack_floor").get("stream_seq")),
        )
        for each in found
        if isinstance(each, Mapping)
    ]
    tool.output.result(
        {"consumers": found},
        Table(
            ("CONSUMER", "MODE", "ACK-PENDING", "REDELIVERED", "WAITING", "UNREAD", "ACK-FLOOR"),
            sorted(rows, key=str),
            empty=f"The stream {stream} has no consumers.",
        ),
    )


@command("info", consumer, connects=False)
@_stream
@_name
@server_options
async def info(tool: Tool, stream: str, name: str, server: str, tls_ca: str | None, timeout_ms: int) -> None:
    """Show the configuration and the state of a consumer."""
    async with jetstream(server, tls_ca, timeout_ms) as api:
        _show(tool, await api.request(f"CONSUMER.INFO.{stream}.{name}"))


@command("create", consumer, connects=False)
@_stream
@_name
@click.option("--ephemeral", is_flag=True, help="End with the broker, and when nobody uses it.")
@click.option("--description", metavar="TEXT", help="A text about the consumer.")
@click.option(
    "--filter", "filters", multiple=True, metavar="SUBJECT", help="Only messages of a subject; repeatable."
)
@click.option(
    "--deliver",
    metavar="all|new|last|subject|SEQUENCE|TIME",
    help="Where to begin: with all messages, new ones, the last one, the last one of each subject, a "
    "sequence, or a date and time such as 2026-11-22T14:30:00.",
)
@click.option("--ack", type=EnumType(AckPolicy), help="Which messages are acknowledged; default explicit.")
@click.option("--wait", type=Duration(), help="How long an acknowledgement may take.")
@click.option("--max-deliver", type=Integer(-1), metavar="N", help="Deliveries of one message.")
@click.option("--max-pending", type=Integer(-1), metavar="N", help="Messages that wait for acknowledgement.")
@click.option("--max-waiting", type=Integer(1), metavar="N", help="Pull requests that wait.")
@click.option(
    "--inactive-threshold", type=Duration(), help="Remove the consumer when it is idle for so long."
)
@click.option("--replay", type=EnumType(Replay), help="How fast to deliver; brokers serve instant only.")
@click.option("--headers-only", is_flag=True, default=None, help="Deliver without payloads.")
@click.option("--target", metavar="SUBJECT", help="Push messages to the subject; without it they are pulled.")
@click.option("--deliver-group", metavar="GROUP", help="The queue group that gets pushed messages.")
@click.option("--heartbeat", type=Duration(), help="Sign of life of a consumer that pushes.")
@click.option("--flow-control", is_flag=True, default=None, help="Push no faster than clients read.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A configuration in JSON; options win over it.",
)
@server_options
async def create(
    tool: Tool, /, stream: str, name: str, server: str, tls_ca: str | None, timeout_ms: int, **options: object
) -> None:
    """Create a durable consumer, or change one that exists."""
    config = _config(name, options)
    kind = f"CONSUMER.DURABLE.CREATE.{stream}.{name}"
    if options["ephemeral"]:
        kind = f"CONSUMER.CREATE.{stream}.{name}"
    async with jetstream(server, tls_ca, timeout_ms) as api:
        _show(tool, await api.request(kind, {"stream_name": stream, "config": config}))


def _config(name: str, options: Mapping[str, object]) -> dict[str, Json]:
    path, filters, deliver = options.get("config"), options.get("filters"), options.get("deliver")
    assert path is None or isinstance(path, Path), "--config is a path"
    assert isinstance(filters, tuple), "--filter is repeatable"
    config = read_config(path)
    for field in ("name", "durable_name"):
        config.pop(field, None)
    config["name" if options.get("ephemeral") else "durable_name"] = name
    config |= given(
        {
            "description": options.get("description"),
            "ack_policy": options.get("ack"),
            "ack_wait": options.get("wait"),
            "max_deliver": options.get("max_deliver"),
            "max_ack_pending": options.get("max_pending"),
            "max_waiting": options.get("max_waiting"),
            "inactive_threshold": options.get("inactive_threshold"),
            "replay_policy": options.get("replay"),
            "headers_only": options.get("headers_only"),
            "deliver_subject": options.get("target"),
            "deliver_group": options.get("deliver_group"),
            "idle_heartbeat": options.get("heartbeat"),
            "flow_control": options.get("flow_control"),
        }
    )
    if len(filters) == 1:
        config["filter_subject"] = str(filters[0])
    elif filters:
        config["filter_subjects"] = [str(each) for each in filters]
    if deliver is not None:
        config |= _start(str(deliver))
    # Without a policy nats-server acknowledges nothing, which pull consumers may not.
    config.setdefault("ack_policy", AckPolicy.EXPLICIT.value)
    config.setdefault("deliver_policy", "all")
    config.setdefault("replay_policy", Replay.INSTANT.value)
    return config


def _start(text: str) -> dict[str, Json]:
    policy = _POLICIES.get(text)
    if policy is not None:
        return {"deliver_policy": policy}
    if text.isascii() and text.isdigit() and 0 < len(text) < 19 and int(text):
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    moment = moment_text(parse_time_ms("--deliver", text) * 1_000_000)
    return {"deliver_policy": "by_start_time", "opt_start_time": moment}


@command("rm", consumer, connects=False)
@_stream
@_name
@click.option("--yes", "-y", "--force", "-f", "yes", is_flag=True, help="Do not ask.")
@server_options
async def rm(
    tool: Tool, stream: str, name: str, yes: bool, server: str, tls_ca: str | None, timeout_ms: int
) -> None:
    """Remove a consumer; the messages of the stream stay."""
    confirm(f"Remove the consumer {name} of the stream {stream}?", is_asked=not yes)
    async with jetstream(server, tls_ca, timeout_ms) as api:
        await api.request(f"CONSUMER.DELETE.{stream}.{name}")
    tool.output.result(
        {"stream": stream, "consumer": name, "deleted": True}, f"removed consumer {name} of stream {stream}"
    )


@command("next", consumer, connects=False)
@_stream
@_name
@click.option(
    "--count", "-n", type=Integer(1, _COUNT_MAX), default=1, show_default=True, metavar="N", help="Messages."
)
@click.option("--ack/--no-ack", default=True, show_default=True, help="Acknowledge what was printed.")
@server_options
async def next_(
    tool: Tool,
    stream: str,
    name: str,
    count: int,
    ack: bool,
    server: str,
    tls_ca: str | None,
    timeout_ms: int,
) -> None:
    """Print the next messages of a pull consumer; fewer if no more come within the time limit."""
    async with jetstream(server, tls_ca, timeout_ms) as api:
        printed = await _print_next(tool, api, stream, name, count, is_acknowledged=ack)
        await api.confirm()
    if not printed:
        raise ToolError(f"no message of the consumer {name} came within {timeout_ms} ms")


async def _print_next(
    tool: Tool, api: JetStreamApi, stream: str, name: str, count: int, *, is_acknowledged: bool
) -> int:
    body = {"batch": count, "expires": api.timeout_ms * NS // 1000}
    until = time.monotonic() + api.timeout_ms / 1000
    reply = await api.send(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", json.dumps(body).encode())
    for printed in range(count):
        # The server ends the request; a little later the answer is missing.
        left_ms = max(int((until - time.monotonic()) * 1000), 0) + api.timeout_ms
        missing = f"the stream {stream} or its consumer {name} did not answer"
        message = await within(left_ms, api.next(reply), missing)
        status = _STATUS.match(message.headers)
        if status is not None:
            if _NO_MESSAGES.match(message.headers):
                return printed
            raise ToolError(
                f"the consumer {name} refuses: {status[2].decode(errors='replace')} ({int(status[1])})"
            )
        show(tool, message)
        tool.output.flush()
        if is_acknowledged and message.reply:
            await api.publish(message.reply, b"+ACK")
    return count


def _show(tool: Tool, found: Document) -> None:
    config = part(found, "config")
    filters = config.get("filter_subjects") or [config.get("filter_subject") or ">"]
    assert isinstance(filters, list), "filters are a list"
    rows: list[tuple[str, Cell]] = [
        ("stream", str(found.get("stream_name"))),
        ("mode", "push" if config.get("deliver_subject") else "pull"),
        ("durable", bool(config.get("durable_name"))),
        ("filter", ",".join(map(str, filters))),
        ("deliver", str(config.get("deliver_policy"))),
        ("ack", str(config.get("ack_policy"))),
        ("wait", time_text(config.get("ack_wait"))),
        ("max-deliver", limit_text(config.get("max_deliver"))),
        ("max-pending", limit_text(config.get("max_ack_pending"))),
        ("created", str(found.get("created"))),
        ("delivered", _count(part(found, "delivered").get("stream_seq"))),
        ("ack-floor", _count(part(found, "ack_floor").get("stream_seq"))),
        ("ack-pending", _count(found.get("num_ack_pending"))),
        ("redelivered", _count(found.get("num_redelivered"))),
        ("waiting", _count(found.get("num_waiting"))),
        ("unread", _count(found.get("num_pending"))),
    ]
    tool.output.result(found, Table((f"CONSUMER {found.get('name')}", "VALUE"), rows))


def _count(value: Json) -> int:
    return value if isinstance(value, int) else 0
