"""Makes functions into commands: adds the options that tools share, runs them, turns errors into exit codes.

    topics = noun("Create, list, describe, alter and delete topics.")

    @command("list", topics)
    @click.option("--exclude-internal", is_flag=True, help="Leave out internal topics.")
    async def list_topics(tool: Tool, exclude_internal: bool) -> None:
        \"\"\"List topics.\"\"\"
        async with tool.admin() as admin:
            ...
        tool.output.result(document, Table(...))

A function gets a `Tool` and the values of its own options. It returns for exit code 0 and raises `ToolError`
for a failure, `ToolUsageError` for a wrong command line. Modules of tools import the clients inside their
functions, so that help and completion stay quick.
"""

import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec

import click

from kalda.command.errors import FAILURE, USAGE, PartialFailureError, ToolError
from kalda.command.groups import CONTEXT_SETTINGS, HelpCommand, SuggestingGroup
from kalda.command.option_types import Integer
from kalda.command.output import Output
from kalda.command.tables import printable
from kalda.common.logging import LogFormat, LogLevel, LogOptions, configure, report_failure

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.config.common_config import CommonClientConfig

BOOTSTRAP_VARIABLE: Final = "KALDA_BOOTSTRAP_SERVER"
BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
"""Where `kalda start` listens by default."""


_CLIENT_DEFAULTS: Final = {"bootstrap.wait.ms": "0"}
"""A person at a terminal mistypes an address more often than they are ahead of a broker."""

_ADMIN_DEFAULTS: Final = {"client.id": "kalda", "default.api.timeout.ms": "15000"}
"""A person waits for the result: a wrong address must not take a minute."""

PRODUCER_ALIASES: Final[Mapping[str, Sequence[str]]] = {
    "--command-config": ("--producer.config",),
    "--command-property": ("--producer-property", "--producer-props"),
}
CONSUMER_ALIASES: Final[Mapping[str, Sequence[str]]] = {
    "--command-config": ("--consumer.config",),
    "--command-property": ("--consumer-property",),
}
"""The names in Kafka's tools before 4.2 (KIP-1147)."""

_NO_ALIASES: Final[Mapping[str, Sequence[str]]] = {}

Options = ParamSpec("Options")
ToolFunction = Callable[Concatenate["Tool", Options], Awaitable[None] | None]


class SettingOption(NamedTuple):
    """An option of Kafka's tools that stands for a setting of the client; it wins over the other options."""

    option: str
    setting: str
    """The setting's dotted name; a later option for the same setting wins."""

    metavar: str
    help: str


class Tool:
    """The framework's services for a command: its output and the settings of its client."""

    def __init__(
        self, output: Output, properties: Mapping[str, str], *, is_address_default: bool = False
    ) -> None:
        self.output: Final = output
        self.properties: Final = properties
        """Settings with Kafka's dotted names. A command that connects has ``bootstrap.servers`` here."""
        self.is_address_default: Final = is_address_default
        """Whether no option names the brokers, so that a file of the tool may."""

    def at(self, bootstrap_servers: str | None) -> "Tool":
        """Return this with other brokers; unchanged if an option names some, or for None."""
        if bootstrap_servers is None or not self.is_address_default:
            return self
        return Tool(self.output, {**self.properties, "bootstrap.servers": bootstrap_servers})

    def admin(self) -> "AsyncAdmin":
        """Return an admin client with the command's settings, to be used in ``async with``."""
        from kalda.clients.admin.admin_config import AdminConfig
        from kalda.clients.admin.async_admin import AsyncAdmin

        return AsyncAdmin.from_config({**_ADMIN_DEFAULTS, **self.settings_for(AdminConfig)})

    def settings_for(self, kind: "type[CommonClientConfig]") -> dict[str, str]:
        """Return the properties that concern a kind of client; see `client_settings`."""
        from kalda.clients.shared_properties import settings_for

        return {**_CLIENT_DEFAULTS, **settings_for(kind, self.properties)}


def noun(description: str) -> click.Group:
    """Return the group of a tool with verbs, such as `kalda topics list`."""
    return SuggestingGroup(help=description, no_args_is_help=True, context_settings=CONTEXT_SETTINGS)


def command(
    name: str,
    group: click.Group | None = None,
    *,
    connects: bool = True,
    aliases: Mapping[str, Sequence[str]] = _NO_ALIASES,
    settings: Sequence[SettingOption] = (),
    takes_properties: bool = False,
    log_level: LogLevel = LogLevel.ERROR,
) -> Callable[[ToolFunction[Options]], click.Command]:
    """Return a decorator that makes a function, plain or async, a command.

    Args:
        name: the verb, or the tool's name where it has no verbs.
        group: the noun that gets the verb; None where the command is the tool.
        connects: whether the command has the options of a connection to a cluster.
        aliases: other names of these options, which Kafka's tool of that name has.
        settings: options for settings of the client; they take integers.
        takes_properties: whether words that are no options are settings of the client, as in
            ``--producer-props acks=1 linger.ms=5`` of Kafka's tools.
        log_level: what is logged unless the options before the tool's name say so; what runs for long and
            outlives failures logs them.
    """

    def make(function: ToolFunction[Options]) -> click.Command:
        @click.pass_context
        def callback(
            context: click.Context,
            /,
            is_json: bool,
            bootstrap_server: str | None = None,
            command_config: Path | None = None,
            command_property: tuple[str, ...] = (),
            more_properties: tuple[str, ...] = (),
            **options: Any,
        ) -> int:
            _configure_logging(context, log_level)

            def run() -> None:
                tool_output = Output.of_process(is_json=is_json)
                given = given_properties(bootstrap_server, command_config, command_property + more_properties)
                for number, each in enumerate(settings):
                    if (value := options.pop(f"setting_{number}")) is not None:
                        given[each.setting] = str(value)
                properties = {**default_address(), **given} if connects else {}
                is_default = "bootstrap.servers" not in given
                _run(function, Tool(tool_output, properties, is_address_default=is_default), options)
                tool_output.flush()

            return exit_code_of(run)

        own = list(reversed(getattr(function, "__click_params__", [])))  # click collects them in reverse
        made = HelpCommand(
            name,
            callback=callback,
            params=[
                *own,
                *([_more_properties()] if takes_properties else []),
                *(_setting_option(number, each) for number, each in enumerate(settings)),
                *(_connection_options(aliases) if connects else []),
                _json_option(),
            ],
            help=inspect.getdoc(function),
            context_settings=CONTEXT_SETTINGS,
        )
        made.tool_function = function
        if group is not None:
            group.add_command(made)
        return made

    return make


def _run(function: Callable[..., Awaitable[None] | None], tool: Tool, options: Mapping[str, Any]) -> None:
    if inspect.iscoroutinefunction(function):
        # Imported before there is a coroutine: Ctrl-C during the import would leave it behind.
        from kalda.runtime.system.event_loop import run_on_new_loop

        run_on_new_loop(function(tool, **options))
    else:
        function(tool, **options)


def _setting_option(number: int, each: SettingOption) -> click.Option:
    return click.Option(
        [each.option, f"setting_{number}"],
        type=Integer(0),
        metavar=each.metavar,
        help=f"{each.help} It sets {each.setting}.",
    )


def _connection_options(aliases: Mapping[str, Sequence[str]]) -> list[click.Option]:
    def names(option: str) -> list[str]:
        return [option, *aliases.get(option, ()), option.removeprefix("--").replace("-", "_")]

    return [
        click.Option(
            names("--bootstrap-server"),
            metavar="HOST:PORT,...",
            help=f"Brokers to connect to first. Default: ${BOOTSTRAP_VARIABLE}, else {BOOTSTRAP_DEFAULT}.",
        ),
        click.Option(
            names("--command-config"),
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A properties file with settings of the client.",
        ),
        click.Option(
            names("--command-property"),
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of the client; wins over the file; repeatable.",
        ),
    ]


def _more_properties() -> click.Argument:
    return click.Argument(["more_properties"], nargs=-1, metavar="[KEY=VALUE]...")


def _json_option() -> click.Option:
    return click.Option(
        ["--json", "is_json"], is_flag=True, help="Print JSON: one document, or one line for each item."
    )


def default_address() -> dict[str, str]:
    """Return the setting of the brokers that a command connects to without options."""
    return {"bootstrap.servers": os.environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP_DEFAULT}


def given_properties(
    bootstrap_server: str | None, command_config: Path | None, command_property: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the settings of the options: the file's, over them `--command-property`, then the address.

    Raises:
        ToolUsageError: the file cannot be read, or a word is no setting.
    """
    from kalda.command.values import parse_settings, read_settings

    properties = read_settings("--command-config", command_config)
    properties |= parse_settings("--command-property", command_property)
    if bootstrap_server is not None:
        properties["bootstrap.servers"] = bootstrap_server
    return properties


def exit_code_of(run: Callable[[], None]) -> int:
    """Run a command and return its exit code; an error of the world is one line on stderr.

    Other exceptions, which are faults of this program, pass through with their traceback.
    """
    try:
        run()
    except PartialFailureError as error:
        return error.exit_code
    except ToolError as error:
        report_failure(printable(str(error)))
        return error.exit_code
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise  # the root command reports them; a closed pipe is a quiet end
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        report_failure(printable(str(error)))
        return code
    return 0


def _exit_code(error: Exception) -> int | None:
    """Return the exit code for an error of the clients, or None for a fault of this program."""
    from kalda.common.config_def import ConfigError
    from kalda.net.client.client_errors import ClientConfigError, ClientError

    if isinstance(error, ConfigError | ClientConfigError):
        return USAGE
    return FAILURE if isinstance(error, ClientError) else None


def _configure_logging(context: click.Context, level: LogLevel) -> None:
    """Log what the command logs, unless the options before the tool's name ask for more or less."""
    given = context.find_root().obj
    options = given if isinstance(given, LogOptions) else LogOptions()
    configure(options.level or level, options.form or LogFormat.TEXT, process="kalda")
    if options.level is None:
        # A person has to see what a command waits for.
        logging.getLogger("kalda.clients.first_contact").setLevel(logging.WARNING)
