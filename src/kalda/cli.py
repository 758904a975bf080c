"""The `kalda` command."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

import kalda

_BROKERS_MAX: Final = 64
"""More brokers than a machine has cores gain nothing, and each costs memory; this only stops a slip."""

app = typer.Typer(
    name="kalda",
    help="A streaming platform that speaks Apache Kafka's wire protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"kalda {kalda.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run one of the commands below."""


_Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")
]
_ConfigFile = Annotated[Path | None, typer.Option(help="A server.properties file; --set overrides it.")]


@app.command()
def start(
    directory: Annotated[
        Path, typer.Option("--dir", help="Where everything is kept; made if it is not there.")
    ] = Path("kalda-data"),
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="The first broker's port on 127.0.0.1, the next ones follow; 0: any."
        ),
    ] = 9092,
    brokers: Annotated[
        int, typer.Option(min=1, max=_BROKERS_MAX, help="How many brokers to run, one per core at best.")
    ] = 1,
    zookeeper_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The coordination server's port; 0 picks a free one.")
    ] = 0,
    settings: _Settings = None,
    config: _ConfigFile = None,
) -> None:
    """Start brokers with embedded coordination, in the foreground; SIGTERM or Ctrl-C ends them.

    One broker runs in this process, several in a process each.
    """
    # Imported here: other commands need none of it.
    from kalda.broker.process.config import started_config, started_properties

    if port + brokers - 1 > 65535:
        _fail(f"--port={port} leaves no room for --brokers={brokers} ports up to 65535")
    in_file, by_name = _properties(config, settings)
    properties = {**in_file, **by_name}
    with _settings_checked():
        configs = [
            started_config(directory, port, properties, broker_id=broker_id, brokers=brokers)
            for broker_id in range(brokers)
        ]
    _configure_logging()
    if brokers == 1:
        from kalda.broker.process.standalone import run_standalone

        sys.exit(run_standalone(directory, configs[0], zookeeper_port))
    from kalda.broker.process.group import run_group

    written = [
        {name: value for name, value in each.items() if in_file.get(name) != value}
        for each in (
            started_properties(directory, port, properties, broker_id=broker_id, brokers=brokers)
            for broker_id in range(brokers)
        )
    ]
    sys.exit(run_group(directory, written, config_file=config, zookeeper_port=zookeeper_port))


@app.command()
def broker(
    directory: Annotated[
        Path, typer.Option("--dir", help="The log directory, unless log.dirs says otherwise.")
    ] = Path("kalda-data"),
    broker_id: Annotated[
        int | None, typer.Option("--id", min=-1, help="The broker's id; without one it is given one.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port on 127.0.0.1, 9092 by default; 0 picks a free one."),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(help="Coordination as HOST:PORT,.../CHROOT; 127.0.0.1:2181 by default."),
    ] = None,
    settings: _Settings = None,
    config: _ConfigFile = None,
    is_supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run one broker of a cluster in the foreground; SIGTERM or Ctrl-C ends it."""
    from kalda.broker.process.broker import run_broker
    from kalda.broker.process.config import broker_config

    in_file, by_name = _properties(config, settings)
    with _settings_checked():
        broker_settings = broker_config(
            directory, {**in_file, **by_name}, broker_id=broker_id, port=port, zookeeper=zookeeper
        )
    _configure_logging(f"broker {broker_settings.broker_id}" if is_supervised else "")
    sys.exit(run_broker(directory, broker_settings, is_supervised=is_supervised))


@app.command()
def zookeeper(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where everything is kept; dataDir, or kalda-zookeeper.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen at; clientPortAddress, or 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port; clientPort, or 2181. 0 picks a free one."),
    ] = None,
    settings: _Settings = None,
    config: Annotated[Path | None, typer.Option(help="A zoo.cfg file; --set overrides it.")] = None,
) -> None:
    """Run the coordination server alone, in the foreground; SIGTERM or Ctrl-C ends it."""
    from kalda.broker.process.zookeeper import run_zookeeper
    from kalda.zk.server.config import ZooKeeperConfig

    in_file, by_name = _properties(config, settings)
    with _settings_checked():
        given = ZooKeeperConfig.from_properties({**in_file, **by_name})
    _configure_logging()
    code = run_zookeeper(
        directory or Path(given.data_dir or "kalda-zookeeper"),
        given,
        host or given.client_port_address or "127.0.0.1",
        given.client_port if port is None else port,
    )
    sys.exit(code)


def _properties(config: Path | None, settings: list[str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """Read what is set, in the file and by --set."""
    from kalda.broker.config.properties import PropertiesError, parse_assignments, read_properties

    try:
        return read_properties(config) if config is not None else {}, parse_assignments(settings or [])
    except OSError as error:
        _fail(f"--config={config}: {error.strerror}")
    except PropertiesError as error:
        _fail(str(error))


@contextmanager
def _settings_checked() -> Iterator[None]:
    """Tell of a setting that is not allowed in one line."""
    from kalda.common.config_def import ConfigError

    try:
        yield
    except ConfigError as error:
        _fail(str(error))


def _configure_logging(context: str = "") -> None:
    from kalda.common.logging import configure

    configure(context=context)


def _fail(message: str) -> NoReturn:
    print(f"kalda: {message}", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
