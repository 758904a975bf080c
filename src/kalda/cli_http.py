"""Defines `kalda http`: schema registry, gateway and console for a cluster.

It is beside the tools and not one of them: it serves, and needs packages of its own.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError
from kalda.command.option_types import Integer
from kalda.command.values import parse_settings, read_settings
from kalda.common.extras import missing_package
from kalda.common.logging import LogLevel

_PACKAGES: Final = ("starlette", "uvicorn", "httptools", "websockets", "httpx")
"""What serving anything needs; a part that needs more says so. uvicorn works without httptools, at a fifth of
the speed."""


def missing_packages() -> str | None:
    """Return what is missing to serve, and how to install it; None if nothing is."""
    for name in _PACKAGES:
        if find_spec(name) is None:
            error = ModuleNotFoundError(f"No module named {name!r}", name=name)
            return str(missing_package("kalda http", "http", error))
    return None


@command("http", log_level=LogLevel.INFO)
@click.option(
    "--port",
    type=Integer(0, 65535),
    metavar="PORT",
    help="The port to listen on (8080, unless `listeners` has another); 0 picks a free one.",
)
@click.option(
    "--host", metavar="ADDRESS", help="The address to listen on (127.0.0.1, unless `listeners` has another)."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting; repeatable.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A properties file with settings; a schema-registry.properties may be used. --set overrides it.",
)
@click.option("--supervised", "is_supervised", is_flag=True, hidden=True)
def http(
    tool: Tool,
    port: int | None,
    host: str | None,
    settings: tuple[str, ...],
    config: Path | None,
    is_supervised: bool,
) -> None:
    """Serve schema registry, gateway and console over HTTP.

    Schema registry under /, gateway under /v1, console under /console, metrics under /metrics. It runs in
    the foreground; SIGTERM or Ctrl-C ends it after the responses under way. The options of the connection to
    the cluster are those of the tools; settings of the server are in --config and --set.
    """
    missing = missing_packages()
    if missing is not None:
        raise ToolError(missing)
    from kalda.http.server import ListenError, serve
    from kalda.http.settings import HttpSettings
    from kalda.runtime.system.event_loop import run_on_new_loop

    properties = {**read_settings("--config", config), **parse_settings("--set", settings)}
    client = dict(tool.properties)
    if tool.is_address_default and "kafkastore.bootstrap.servers" in properties:
        del client["bootstrap.servers"]
    given = HttpSettings.read(properties, client, host=host, port=port)

    def ready(address: str) -> None:
        tool.output.item({"http": address}, f"kalda ready http={address}")
        tool.output.flush()

    try:
        run_on_new_loop(serve(given, ready, is_supervised=is_supervised))
    except ListenError as error:
        raise ToolError(str(error)) from None
