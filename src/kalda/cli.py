"""Defines the `kalda` command line: the commands that run servers, and the tools behind them.

It runs no broker code itself; each command imports what it needs, so that ``kalda --help`` is quick. The
tools are those of `kalda.cli_tools`, loaded one at a time.
"""

import gc
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import click

import kalda
from kalda.cli_tools import LazyGroup
from kalda.command.groups import CONTEXT_SETTINGS
from kalda.command.option_types import EnumType, Integer, OptionValueError
from kalda.command.output import escape_unencodable
from kalda.common.logging import LogFormat, LogLevel, LogOptions, configure, report_failure

if TYPE_CHECKING:
    from kalda.broker.process.http_child import HttpOptions
    from kalda.broker.process.secure import SecureCluster

_BROKERS_MAX: Final = 64
"""More brokers than cores gain nothing and cost memory; the limit only catches typing errors."""

_Function = TypeVar("_Function", bound=Callable[..., object])


def _collect_no_garbage_yet(context: click.Context) -> None:
    """Switch garbage collection off until the server's event loop runs, or the command ends.

    What imports create stays, and collections that find nothing are a twentieth of a broker's start.
    """
    gc.disable()
    context.call_on_close(gc.enable)


def _port_option(description: str, option: str = "--port") -> Callable[[_Function], _Function]:
    return click.option(option, type=Integer(0, 65535), metavar="PORT", help=description)


def _log_options(function: _Function) -> _Function:
    level = click.option(
        "--log-level",
        type=EnumType(LogLevel),
        metavar="LEVEL",
        help="Lowest level: debug, info (default), warning or error.",
    )
    form = click.option(
        "--log-format",
        type=EnumType(LogFormat),
        metavar="FORMAT",
        help="text (the default), or json: one object per line.",
    )
    return level(form(function))


def _set_options(file: str) -> Callable[[_Function], _Function]:
    """Add the options for settings, from a file and by name."""
    by_name = click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting; repeatable."
    )
    config = click.option(
        "--config", type=click.Path(path_type=Path), help=f"A {file} file; --set overrides it."
    )
    return lambda function: by_name(config(_log_options(function)))


def _as_version(_context: click.Context, _option: click.Parameter, release: str | None) -> tuple[str, ...]:
    return () if release is None else (f"kalda.as.version={release}",)


def _faults(_context: click.Context, _option: click.Parameter, file: Path | None) -> tuple[str, ...]:
    return () if file is None else (f"kalda.faults.file={file.resolve()}",)


_as_version_option = click.option(
    "--as-version",
    metavar="RELEASE",
    callback=_as_version,
    help="Answer clients as this release of Apache Kafka, 0.8.2 to 3.9, to test them.",
)


def _directory_option(description: str, default: str | None = None) -> Callable[[_Function], _Function]:
    return click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path),
        default=default,
        show_default=default is not None,
        help=description,
    )


def _print_version(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        click.echo(_version_text())
        context.exit()


def _version_text() -> str:
    from kalda.protocol.fast import implementation as of_requests
    from kalda.records import implementation as of_records

    used = {"records": of_records.is_compiled(), "requests": of_requests.is_compiled}
    compiled = [name for name, is_compiled in used.items() if is_compiled]
    if len(compiled) == 1:
        implementation = f"{compiled[0]} compiled, the rest pure Python"
    else:
        implementation = "compiled" if compiled else "pure Python"
    return f"kalda {kalda.__version__} ({implementation})"


@click.group(name="kalda", cls=LazyGroup, no_args_is_help=True, context_settings=CONTEXT_SETTINGS)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    hidden=True,  # `kalda version` is in the list, which fits two screens.
    help="Print the version.",
)
@_log_options
@click.pass_context
def app(context: click.Context, log_level: LogLevel | None, log_format: LogFormat | None) -> None:
    """A streaming platform that speaks Apache Kafka's wire protocol."""
    context.obj = LogOptions(log_level, log_format)


@app.command()
@_directory_option("The directory of all data; created if it does not exist.", "kalda-data")
@_port_option("The first broker's port on 127.0.0.1 (default 9092), others take the next ones; 0: any.")
@click.option(
    "--brokers",
    type=Integer(1, _BROKERS_MAX),
    metavar="COUNT",
    default=1,
    show_default=True,
    help="How many brokers to run; at most one per core is useful.",
)
@_port_option("The coordination server's port; 0 (the default) picks a free one.", "--zookeeper-port")
@click.option(
    "--secure",
    "is_secure",
    is_flag=True,
    help="Encrypt, demand logins and check ACLs. The first start makes certificates and an administrator, "
    "and writes client.properties and ca.pem into the directory.",
)
@_port_option(
    "Serve schema registry, gateway and console over HTTP as well, on this port of 127.0.0.1; 0: any.",
    "--http",
)
@click.option(
    "--scram-users",
    type=click.Path(path_type=Path),
    help="A properties file of users and passwords (alice=secret). Those without SCRAM credentials get them "
    "before the first broker starts.",
)
@_as_version_option
@click.option(
    "--faults",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    callback=_faults,
    help="A plan of faults in YAML that is in force from the start, to test clients.",
)
@_set_options("server.properties")
@click.pass_context
def start(
    context: click.Context,
    directory: Path,
    port: int | None,
    brokers: int,
    zookeeper_port: int | None,
    is_secure: bool,
    http: int | None,
    scram_users: Path | None,
    as_version: tuple[str, ...],
    faults: tuple[str, ...],
    settings: tuple[str, ...],
    config: Path | None,
    log_level: LogLevel | None,
    log_format: LogFormat | None,
) -> None:
    """Start brokers and a coordination server.

    They run in the foreground; SIGTERM or Ctrl-C shuts them down. A single broker runs in this process;
    several brokers run in one process each.
    """
    _collect_no_garbage_yet(context)
    log = _configure_logging(context, log_level, log_format, "kalda start")
    # Imported here: other commands need none of it.
    from kalda.broker.process.config import started_config, started_properties

    if (port or 0) + brokers - 1 > 65535:
        _fail(f"--port={port} leaves no room for --brokers={brokers} ports up to 65535")
    in_file, by_name = _properties(config, (*settings, *as_version, *faults))
    secure = _secured(directory, in_file, by_name) if is_secure else None
    if secure is not None:
        in_file, config = secure.settings, secure.settings_file
    users = {**_users(scram_users), **({} if secure is None else secure.users)}
    client_file = None if secure is None else secure.client_file
    properties = {**in_file, **by_name}
    with _settings_checked():
        configs = [
            started_config(
                directory, port, properties, broker_id=broker_id, brokers=brokers, is_secure=is_secure
            )
            for broker_id in range(brokers)
        ]
    if is_secure:
        _close_to_others({directory, *(Path(each) for config in configs for each in config.log_dirs)})
    served = None if http is None else _http_options(http, client_file, log)
    if brokers == 1:
        from kalda.broker.process.standalone import run_standalone

        sys.exit(run_standalone(directory, configs[0], zookeeper_port or 0, users, client_file, served))
    from kalda.broker.process.broker_processes import run_group

    written = [
        {name: value for name, value in each.items() if in_file.get(name) != value}
        for each in (
            started_properties(
                directory, port, properties, broker_id=broker_id, brokers=brokers, is_secure=is_secure
            )
            for broker_id in range(brokers)
        )
    ]
    sys.exit(
        run_group(
            directory,
            configs,
            written,
            config_file=config,
            zookeeper_port=zookeeper_port or 0,
            users=users,
            client_file=client_file,
            options=_log_arguments(log),
            http=served,
        )
    )


def _http_options(port: int, client_file: Path | None, log: LogOptions) -> "HttpOptions":
    """Return what `kalda http` is started with; fail where its packages are missing."""
    from kalda.broker.process.http_child import HttpOptions
    from kalda.cli_http import missing_packages

    missing = missing_packages()
    if missing is not None:
        _fail(f"--http={port}: {missing}")
    return HttpOptions(port, client_file, _log_arguments(log))


@app.command()
def version() -> None:
    """Print the version."""
    click.echo(_version_text())


@app.command("help")
@click.argument("path", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def show_help(context: click.Context, path: tuple[str, ...]) -> None:
    """Show the help of a command, or this list."""
    assert context.parent is not None, "the root command has this one"
    here, command = context.parent, context.parent.command
    for word in path:
        if not isinstance(command, click.Group):
            here.fail(f"`{here.command_path}` has no command {word}")
        _, found, _ = command.resolve_command(here, [word])
        assert found is not None, "an unknown command is an error"
        command = found
        here = command.context_class(command, parent=here, info_name=word, **command.context_settings)
    click.echo(command.get_help(here))


def _users(file: Path | None) -> dict[str, str]:
    """Return the passwords in a file by user; fail without showing one if it is malformed."""
    from kalda.common.properties import PropertiesError, read_properties

    if file is None:
        return {}
    try:
        users = read_properties(file)
    except OSError as error:
        _fail(f"--scram-users={file}: {error.strerror}")
    except PropertiesError:
        _fail(f"--scram-users={file}: it is no properties file of users and passwords")
    if not all(users) or not all(users.values()):
        _fail(f"--scram-users={file}: a name or a password is empty")
    return users


def _close_to_others(directories: Iterable[Path]) -> None:
    from kalda.broker.process.secure import close_to_others

    try:
        close_to_others(directories)
    except OSError as error:
        _fail(
            f"--secure: {error.filename} cannot be closed to other users: {error.strerror}; "
            "give it to the user of this command"
        )


def _secured(directory: Path, in_file: Mapping[str, str], by_name: Mapping[str, str]) -> "SecureCluster":
    """Make or find what `--secure` needs, and say on stderr where clients find their part."""
    from kalda.broker.process.secure import prepare

    for name in ("listeners", "advertised.listeners", "inter.broker.listener.name"):
        if name in in_file or name in by_name:
            _fail(f"--secure makes the listeners itself, so `{name}` cannot be set; leave one of them out")
    try:
        secure = prepare(directory, in_file)
    except (OSError, ValueError) as error:
        _fail(f"--secure: {error}")
    if secure.is_new:
        click.echo(
            f"kalda: clients connect with {secure.client_file}; other clients trust {secure.authority_file}",
            err=True,
        )
    return secure


@app.command()
@_directory_option("The log directory, unless log.dirs is set.", "kalda-data")
@click.option(
    "--id", "broker_id", type=Integer(-1), metavar="ID", help="The broker's id; generated if absent or -1."
)
@_port_option("The port on 127.0.0.1 (default 9092); 0 picks a free one.")
@click.option("--zookeeper", help="ZooKeeper as HOST:PORT,.../CHROOT (default 127.0.0.1:2181).")
@click.option(
    "--coordination",
    metavar="URI",
    help="The cluster's engine: etcd://HOST:PORT,.../PREFIX or zookeeper://HOST:PORT,.../CHROOT.",
)
@_as_version_option
@_set_options("server.properties")
@click.option("--supervised", "is_supervised", is_flag=True, hidden=True)
@click.pass_context
def broker(
    context: click.Context,
    directory: Path,
    broker_id: int | None,
    port: int | None,
    zookeeper: str | None,
    coordination: str | None,
    as_version: tuple[str, ...],
    settings: tuple[str, ...],
    config: Path | None,
    log_level: LogLevel | None,
    log_format: LogFormat | None,
    is_supervised: bool,
) -> None:
    """Run one broker of a cluster.

    It runs in the foreground; SIGTERM or Ctrl-C shuts it down.
    """
    _collect_no_garbage_yet(context)
    log = _configure_logging(context, log_level, log_format, "kalda broker")
    from kalda.broker.process.broker import run_broker
    from kalda.broker.process.config import broker_config

    in_file, by_name = _properties(config, (*settings, *as_version))
    with _settings_checked():
        broker_settings = broker_config(
            directory,
            {**in_file, **by_name},
            broker_id=broker_id,
            port=port,
            zookeeper=zookeeper,
            coordination=coordination,
        )
    if is_supervised:
        # The brokers of one `kalda start` share a terminal, so each line names its broker.
        _apply_logging(log, f"broker {broker_settings.broker_id}", is_prefixed=True)
    sys.exit(run_broker(directory, broker_settings, is_supervised=is_supervised))


@app.command()
@_directory_option("The data directory (dataDir, else kalda-zookeeper).")
@click.option("--host", help="The address to listen on (clientPortAddress, else 127.0.0.1).")
@_port_option("The port (clientPort, else 2181); 0 picks a free one.")
@_set_options("zoo.cfg")
@click.pass_context
def zookeeper(
    context: click.Context,
    directory: Path | None,
    host: str | None,
    port: int | None,
    settings: tuple[str, ...],
    config: Path | None,
    log_level: LogLevel | None,
    log_format: LogFormat | None,
) -> None:
    """Run only the coordination server.

    It runs in the foreground; SIGTERM or Ctrl-C shuts it down.
    """
    _collect_no_garbage_yet(context)
    _configure_logging(context, log_level, log_format, "kalda zookeeper")
    from kalda.broker.process.config import zookeeper_config
    from kalda.broker.process.zookeeper import run_zookeeper

    in_file, by_name = _properties(config, settings)
    properties = {**in_file, **by_name}
    with _settings_checked():
        given = zookeeper_config(properties, directory=directory, host=host, port=port)
    sys.exit(run_zookeeper(given, properties))


@app.command()
@click.option(
    "--brokers",
    type=Integer(1, _BROKERS_MAX),
    metavar="COUNT",
    default=1,
    show_default=True,
    help="How many brokers to run, in this process.",
)
@click.option("--json", "is_json", is_flag=True, help="Print the ready line as a JSON object.")
@click.option(
    "--security",
    "protocol",
    type=click.Choice(["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]),
    default="plaintext",
    show_default=True,
    help="How clients connect; --json prints the settings of each user.",
)
@click.option("--user", "users", multiple=True, help="A user beside admin, with --security; repeatable.")
@_as_version_option
@_set_options("server.properties")
@click.pass_context
def testing(
    context: click.Context,
    brokers: int,
    is_json: bool,
    protocol: str,
    users: tuple[str, ...],
    as_version: tuple[str, ...],
    settings: tuple[str, ...],
    config: Path | None,
    log_level: LogLevel | None,
    log_format: LogFormat | None,
) -> None:
    """Run a cluster for tests, in any language.

    The ready line is the first line on stdout. The cluster ends with the process that started it, when stdin
    is closed, and by SIGTERM or Ctrl-C; nothing of it stays. Operations, one JSON object a line, are read
    from stdin if that is a pipe: {"namespace": {}}, {"close": "1"}, {"kill": 0}, {"start": 0}, and others.
    """
    _configure_logging(context, log_level or LogLevel.WARNING, log_format, "kalda testing")
    from kalda.testing import ClusterError, Security
    from kalda.testing.testing_process import run_testing

    in_file, by_name = _properties(config, (*settings, *as_version))
    if users and protocol == "plaintext":
        _fail("--user has no effect without --security")
    try:
        security = None if protocol == "plaintext" else Security(users=users, protocol=protocol.upper())
    except ValueError as error:
        _fail(f"--user: {error}")
    with _settings_checked():
        try:
            code = run_testing(brokers, {**in_file, **by_name}, security, is_json=is_json)
        except ClusterError as error:
            _fail(str(error))
    sys.exit(code)


def _properties(config: Path | None, settings: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of the file and those of --set."""
    from kalda.common.properties import PropertiesError, parse_assignments, read_properties

    try:
        return read_properties(config) if config is not None else {}, parse_assignments(settings)
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
    context: click.Context, level: LogLevel | None, form: LogFormat | None, process: str
) -> LogOptions:
    """Configure logging and return the options in effect."""
    before = context.obj
    assert isinstance(before, LogOptions), "the callback of the app sets it"
    options = LogOptions(level or before.level, form or before.form)
    _apply_logging(options, process)
    return options


def _apply_logging(options: LogOptions, process: str, *, is_prefixed: bool = False) -> None:
    configure(
        options.level or LogLevel.INFO,
        options.form or LogFormat.TEXT,
        process=process,
        is_prefixed=is_prefixed,
    )


def _log_arguments(options: LogOptions) -> list[str]:
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
    escape_unencodable(sys.stdout, sys.stderr)
    try:
        sys.exit(app(prog_name="kalda", standalone_mode=False))
    except click.Abort:
        sys.exit(1)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except OptionValueError as error:
        _fail(error.message)
    except click.UsageError as error:
        message = error.format_message().rstrip().removesuffix(".")
        command = "kalda" if error.ctx is None else error.ctx.command_path
        # click puts several suggestions into brackets.
        message = re.sub(r"\. \(?Did you mean (.*\?)\)?$", r"; did you mean \1", message)
        _fail(f"{message}{' See' if message.endswith('?') else '; see'} `{command} -h`")


if __name__ == "__main__":
    main()
