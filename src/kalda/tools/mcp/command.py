"""`kalda mcp`: the command."""

import getpass
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError
from kalda.common.extras import install_hint
from kalda.common.logging import LogLevel

_CONSUMER: Final = {
    "client.id": "kalda-mcp",
    "default.api.timeout.ms": "15000",
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": "false",
}

_CALLS_MAX: Final = 100_000
"""Calls in ten seconds that the audit log writes: all that a server on a pipe can get."""


@command("mcp", log_level=LogLevel.WARNING)
@click.option("--allow-writes", is_flag=True, help="Offer tools that change the cluster too.")
@click.option(
    "--audit-log",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append a line of JSON for each call to this file; without it they go to stderr.",
)
async def mcp(tool: Tool, allow_writes: bool, audit_log: Path | None) -> None:
    """Serve tools for agents over stdin and stdout.

    It speaks the Model Context Protocol. The tools describe the cluster, topics, groups and settings, read
    and search records, and run the checks of `kalda doctor`. They change nothing without --allow-writes.
    """
    if find_spec("mcp") is None:
        raise ToolError(f"kalda mcp needs the package mcp; {install_hint('mcp')}")
    from kalda.clients.consumer.async_consumer import AsyncConsumer
    from kalda.clients.consumer.consumer_config import ConsumerConfig
    from kalda.security.audit import AuditLog
    from kalda.tools.mcp.reads import ReadTools
    from kalda.tools.mcp.server import make_server
    from kalda.tools.mcp.writes import WriteTools

    _log_calls(audit_log)
    settings = {**_CONSUMER, **tool.settings_for(ConsumerConfig)}
    settings.pop("group.id", None)

    def consumer() -> "AsyncConsumer[bytes | None, bytes | None]":
        return AsyncConsumer.from_config(settings)

    async with tool.admin() as admin:
        server = make_server(
            ReadTools(admin, consumer, tool),
            WriteTools(admin) if allow_writes else None,
            AuditLog(burst=_CALLS_MAX),
            f"OS:{getpass.getuser()}",
        )
        await server.run_stdio_async()


def _log_calls(path: Path | None) -> None:
    """Let the audit log reach the file, or stderr.

    Raises:
        ToolError: the file cannot be written.
    """
    from kalda.security.audit import logger

    logger.setLevel(logging.INFO)
    if path is None:
        return
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ToolError(f"--audit-log={path}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter('{"time":"%(asctime)s","call":%(message)s}'))
    logger.addHandler(handler)
    logger.propagate = False
