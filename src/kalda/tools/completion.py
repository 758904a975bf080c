"""`kalda completion`: prints the script that makes a shell complete the words of `kalda`.

The candidates are click's: the script calls `kalda` with the line in environment variables, and
`click.Command.main` answers. The scripts for bash and zsh are click's too. click's script for fish splits an
answer at every comma and so cuts descriptions off; this module has its own.
"""

import click
from click.shell_completion import get_completion_class

from kalda.command.command import Tool, command

_VARIABLE = "_KALDA_COMPLETE"
"""The name that click derives from the program's name."""

_FISH_SCRIPT = f"""\
function _kalda_completion
    set -l line (commandline --cut-at-cursor --current-process | string collect)
    set -l current (commandline --current-token --cut-at-cursor)
    set -l option (string match --regex -- '^--[^=]+=' "$current")
    for answer in (env {_VARIABLE}=fish_complete COMP_WORDS="$line" COMP_CWORD="$current" kalda)
        set -l parts (string split --max 1 , -- $answer)
        set -l found $parts[2]
        switch $parts[1]
            case dir
                set found (__fish_complete_directories $parts[2])
            case file
                set found (__fish_complete_path $parts[2])
        end
        for each in $found
            printf '%s%s\\n' "$option" $each
        end
    end
end

complete --no-files --command kalda --arguments "(_kalda_completion)"
"""
"""An answer is ``type,value`` or ``type,value<tab>description``, and fish wants ``value<tab>description``."""


@command("completion", connects=False)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(tool: Tool, shell: str) -> None:
    """Print the completion script of a shell.

    bash: add `source <(kalda completion bash)` to ~/.bashrc. zsh: add the same with zsh to ~/.zshrc, behind
    compinit. fish: write the script to ~/.config/fish/completions/kalda.fish.
    """
    if shell == "fish":
        script = _FISH_SCRIPT
    else:
        kind = get_completion_class(shell)
        assert kind is not None, shell
        script = kind(click.Command("kalda"), {}, "kalda", _VARIABLE).source()
    tool.output.result({"shell": shell, "script": script}, *script.split("\n"))
