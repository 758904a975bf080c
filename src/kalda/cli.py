"""Defines the `kalda` command line: it parses options, configures logging and calls `kalda.broker.process`.

It runs no broker code itself; each command imports what it needs, so that ``kalda --help`` is quick.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar

import typer

import kalda
from kalda.common.logging import LogFormat, LogLevel, configure, report_failure

_BROKERS_MAX: Final = 64
"""More brokers than cores gain nothing and cost memory; the limit only catches typing errors."""

app = typer.Typer(
    name="kalda",
    help="A streaming platform that speaks Apache Kafka's wire protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Choice = TypeVar("_Choice", bound=StrEnum)
_UsageError: Final[type[typer.BadParameter]] = typer.BadParameter.__bases__[0]
"""The base class of command-line errors; Typer exports only this subclass of it."""


def _choice_option(option: str, choices: type[_Choice], metavar: str, description: str) -> Any:
    """Return an option that takes a member of `choices`; the error for another value names them."""

    def parse(value: str) -> _Choice:
        try:
            return choices(value.lower())
        except ValueError:
            *first, last = choices
            allowed = f"{', '.join(first)} or {last}"
            raise typer.BadParameter(f"{option}={value} is not allowed: it takes {allowed}") from None

    return typer.Option(option, parser=parse, metavar=metavar, help=description)


def _integer(option: str, least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a parser of an option's value; its error names the bounds."""
    allowed = f"an int, at least {least}" if most is None else f"an int, {least} to {most}"

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise typer.BadParameter(f"{option}={value} is not allowed: it takes {allowed}")
        return number

    return parse


def _port_option(option: str, description: str) -> Any:
    parser = _integer(option, 0, 65535)
    return typer.Option(option, parser=parser, metavar="PORT", help=description)


_Level = Annotated[
    LogLevel | None,
    _choice_option(
        "--log-level",
        LogLevel,
        "LEVEL",
        "The lowest level to log: debug, info (the default), warning or error.",
    ),
]
_Format = Annotated[
    LogFormat | None,
    _choice_option(
        "--log-format", LogFormat, "FORMAT", "text (the default), or json: one JSON object per line."
    ),
]


@dataclass(frozen=True, slots=True)
class _LogOptions:
    """The logging options before the command; those after the command override them."""

    level: LogLevel | None
    form: LogFormat | None


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"kalda {kalda.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    log_level: _Level = None,
    log_format: _Format = None,
) -> None:
    """Run one of the commands below."""
    context.obj = _LogOptions(log_level, log_format)


_Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; repeatable.")
]
_ConfigFile = Annotated[Path | None, typer.Option(help="A server.properties file; --set overrides it.")]


@app.command()
def start(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Option("--dir", help="The directory of all data; created if it does not exist.")
    ] = Path("kalda-data"),
    port: Annotated[
        int | None,
        _port_option(
            "--port",
            "The first broker's port on 127.0.0.1 (default 9092), others take the next ones; 0: any.",
        ),
    ] = None,
    brokers: Annotated[
        int,
        typer.Option(
            parser=_integer("--brokers", 1, _BROKERS_MAX),
            metavar="COUNT",
            help="How many brokers to run; at most one per core is useful.",
        ),
    ] = 1,
    zookeeper_port: Annotated[
        int,
        _port_option("--zookeeper-port", "The coordination server's port; 0 picks a free one."),
    ] = 0,
    settings: _Settings = None,
    config: _ConfigFile = None,
    log_level: _Level = None,
    log_format: _Format = None,
) -> None:
    """Start brokers and a coordination server in the foreground; SIGTERM or Ctrl-C shuts them down.

    A single broker runs in this process; several brokers run in one process each.
    """
    log = _configure_logging(context, log_level, log_format, "kalda start")
    # Imported here: other commands need none of it.
    from kalda.broker.process.config import started_config, started_properties

    if (port or 0) + brokers - 1 > 65535:
        _fail(f"--port={port} leaves no room for --brokers={brokers} ports up to 65535")
    in_file, by_name = _properties(config, settings)
    properties = {**in_file, **by_name}
    with _settings_checked():
        configs = [
            started_config(directory, port, properties, broker_id=broker_id, brokers=brokers)
            for broker_id in range(brokers)
        ]
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
    sys.exit(
        run_group(
            directory,
            configs,
            written,
            config_file=config,
            zookeeper_port=zookeeper_port,
            options=_log_arguments(log),
        )
    )


@app.command()
def broker(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Option("--dir", help="The log directory, unless log.dirs is set.")
    ] = Path("kalda-data"),
    broker_id: Annotated[
        int | None,
        typer.Option(
            "--id",
            parser=_integer("--id", -1),
            metavar="ID",
            help="The broker's id; generated if absent or -1.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        _port_option("--port", "The port on 127.0.0.1 (default 9092); 0 picks a free one."),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(help="ZooKeeper as HOST:PORT,.../CHROOT (default 127.0.0.1:2181)."),
    ] = None,
    settings: _Settings = None,
    config: _ConfigFile = None,
    log_level: _Level = None,
    log_format: _Format = None,
    is_supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run one broker of a cluster in the foreground; SIGTERM or Ctrl-C shuts it down."""
    log = _configure_logging(context, log_level, log_format, "kalda broker")
    from kalda.broker.process.broker import run_broker
    from kalda.broker.process.config import broker_config

    in_file, by_name = _properties(config, settings)
    with _settings_checked():
        broker_settings = broker_config(
            directory, {**in_file, **by_name}, broker_id=broker_id, port=port, zookeeper=zookeeper
        )
    if is_supervised:
        # The brokers of one `kalda start` share a terminal, so each line names its broker.
        _apply_logging(log, f"broker {broker_settings.broker_id}", is_prefixed=True)
    sys.exit(run_broker(directory, broker_settings, is_supervised=is_supervised))


@app.command()
def zookeeper(
    context: typer.Context,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="The data directory (dataDir, else kalda-zookeeper).")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on (clientPortAddress, else 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None,
        _port_option("--port", "The port (clientPort, else 2181); 0 picks a free one."),
    ] = None,
    settings: _Settings = None,
    config: Annotated[Path | None, typer.Option(help="A zoo.cfg file; --set overrides it.")] = None,
    log_level: _Level = None,
    log_format: _Format = None,
) -> None:
    """Run only the coordination server, in the foreground; SIGTERM or Ctrl-C shuts it down."""
    _configure_logging(context, log_level, log_format, "kalda zookeeper")
    from kalda.broker.process.config import zookeeper_config
    from kalda.broker.process.zookeeper import run_zookeeper

    in_file, by_name = _properties(config, settings)
    properties = {**in_file, **by_name}
    with _settings_checked():
        given = zookeeper_config(properties, directory=directory, host=host, port=port)
    sys.exit(run_zookeeper(given, properties))


def _properties(config: Path | None, settings: list[str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of the file and those of --set."""
    from kalda.broker.config.properties import PropertiesError, parse_assignments, read_properties

    try:
        return read_properties(config) if config is not None else {}, parse_assignments(settings or [])
    except OSError as error:
        _fail(f"--config={config}: {error.strerror}")
    except PropertiesError as error:
        _fail(str(error))


@contextmanager
def _settings_checked() -> Iterator[None]:
    """Report a setting that is not allowed in one line."""
    from kalda.common.config_def import ConfigError

    try:
        yield
    except ConfigError as error:
        _fail(str(error))


def _configure_logging(
    context: typer.Context, level: LogLevel | None, form: LogFormat | None, process: str
) -> _LogOptions:
    """Configure logging and return the options in effect."""
    before = context.obj
    assert isinstance(before, _LogOptions), "the callback of the app sets it"
    options = _LogOptions(level or before.level, form or before.form)
    _apply_logging(options, process)
    return options


def _apply_logging(options: _LogOptions, process: str, *, is_prefixed: bool = False) -> None:
    configure(
        options.level or LogLevel.INFO,
        options.form or LogFormat.TEXT,
        process=process,
        is_prefixed=is_prefixed,
    )


def _log_arguments(options: _LogOptions) -> list[str]:
    """Return the command-line options that give a child process the same logging."""
    arguments = []
    if options.level is not None:
        arguments += ["--log-level", options.level.value]
    if options.form is not None:
        arguments += ["--log-format", options.form.value]
    return arguments


def _fail(message: str) -> NoReturn:
    report_failure(message)
    sys.exit(2)


def main() -> None:
    """Run the command line; a wrong option is one line on stderr and exit code 2."""
    try:
        sys.exit(app(prog_name="kalda", standalone_mode=False))
    except typer.Abort:
        sys.exit(1)
    except _UsageError as error:
        if getattr(error, "param", None) is not None:
            _fail(error.message)  # raised by a parser above: it names the option
        message = error.format_message().rstrip().removesuffix(".")
        if message:  # without a command, Typer has printed the help and the message is empty
            command = "kalda" if error.ctx is None else error.ctx.command_path
            _fail(f"{message}; see `{command} -h`")
        sys.exit(2)


if __name__ == "__main__":
    main()
