"""`kalda completion`: prints the script that makes a shell complete the words of `kalda`.

The scripts and the candidates are click's: the script calls `kalda` with the line in environment variables,
and `click.Command.main` answers.
"""

import click
from click.shell_completion import get_completion_class

from kalda.tools.framework.command import Tool, command

_VARIABLE = "_KALDA_COMPLETE"
"""The name that click derives from the program's name."""


@command("completion", connects=False)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(tool: Tool, shell: str) -> None:
    """Print the completion script of a shell.

    bash: add `source <(kalda completion bash)` to ~/.bashrc. zsh: add the same with zsh to ~/.zshrc, behind
    compinit. fish: write the script to ~/.config/fish/completions/kalda.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    script = kind(click.Command("kalda"), {}, "kalda", _VARIABLE).source()
    tool.output.result({"shell": shell, "script": script}, *script.split("\n"))
