"""Groups and commands with examples in their help, sections, and the nearest match for an unknown name."""

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import click

CONTEXT_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
"""What all commands have in common; the width is that of the terminal, up to 110."""


_GROUP_EXAMPLES: Final = 3
"""How many of its commands a group shows by an example: the list of all of them stands above."""


class _HelpFormatter(click.HelpFormatter):
    """Colours headings and names; click takes the colours out where the output is no terminal."""

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        super().write_heading(_styled(heading, bold=True))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names with their descriptions."""
        super().write_dl([(_styled(name, fg="cyan"), text) for name, text in rows], col_max, col_spacing)


def _styled(text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=fg, bold=bold)


class HelpContext(click.Context):
    """A context whose help is coloured on a terminal."""

    formatter_class = _HelpFormatter


def _write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the examples of a command, or one each of the first commands of a group."""
    from kalda.command.examples import EXAMPLES

    path = ctx.command_path.removeprefix("kalda ")
    below = [lines[0] for name, lines in EXAMPLES.items() if name.startswith(f"{path} ")]
    examples = EXAMPLES.get(path, tuple(below[:_GROUP_EXAMPLES]))
    if examples:
        with formatter.section("Example" if len(examples) == 1 else "Examples"):
            for line in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class HelpCommand(click.Command):
    """A command whose help ends with examples."""

    context_class = HelpContext

    tool_function: Callable[..., Awaitable[None] | None] | None = None
    """What the command runs, for programs that want its result; see `kalda.command.embedded`."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        _write_examples(ctx, formatter)


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command names the nearest match."""

    context_class = HelpContext
    command_class = HelpCommand

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples of the first commands."""
        super().format_epilog(ctx, formatter)
        if ctx.parent is not None:
            _write_examples(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first line of their help, whole."""
        self.write_commands(ctx, formatter, "Commands", self.list_commands(ctx))

    def write_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter, heading: str, names: Iterable[str]
    ) -> None:
        """Write one section of the list."""
        rows = self.command_rows(ctx, names)
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows)

    def command_rows(self, ctx: click.Context, names: Iterable[str], width: int = 0) -> list[tuple[str, str]]:
        """Return the names of commands, padded to `width`, with the first line of their help."""
        commands = [(name, self.get_command(ctx, name)) for name in names]
        return [
            (name.ljust(width), (command.help or "").partition("\n")[0])
            for name, command in commands
            if command is not None and not command.hidden
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` begins with."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], names, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)
