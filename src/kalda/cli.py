"""The `kalda` command."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import kalda

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


@app.command()
def start(
    directory: Annotated[
        Path, typer.Option("--dir", help="Where everything is kept; made if it is not there.")
    ] = Path("kalda-data"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The broker's port on 127.0.0.1; 0 picks a free one.")
    ] = 9092,
    brokers: Annotated[int, typer.Option(min=1, help="How many brokers to run.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker setting; may be repeated."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A server.properties file; --set overrides it.")] = None,
) -> None:
    """Start a broker with embedded coordination, in the foreground; SIGTERM or Ctrl-C ends it."""
    # Imported here: other commands need none of it.
    from kalda.broker import standalone
    from kalda.broker.config.properties import PropertiesError, parse_assignments, read_properties
    from kalda.common.config_def import ConfigError
    from kalda.common.logging import configure

    if brokers > 1:
        _fail(f"--brokers={brokers}: this version runs one broker; clusters are not built yet")
    try:
        properties = read_properties(config) if config is not None else {}
        properties.update(parse_assignments(settings or []))
        broker_config = standalone.build_config(directory, port, properties)
    except OSError as error:
        _fail(f"--config={config}: {error.strerror}")
    except (ConfigError, PropertiesError) as error:
        _fail(str(error))
    configure()
    sys.exit(standalone.run(directory, broker_config))


def _fail(message: str) -> NoReturn:
    print(f"kalda: {message}", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
