"""Reads the lines of the interactive shell, and finds what can stand at its cursor.

Nothing here asks the server: completion gets a function that lists children.
"""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kalda.tools.zk.tree_commands import CreateNode, Get, Ls, Rm, Set, StatOf, TreeCommand, child_path
from kalda.zookeeper.port import ANY_VERSION


class ShellLineError(ValueError):
    """The line is no command; the message has its usage."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How a command of the shell is written: its options and what it does."""

    form: str
    help: str
    flags: str = ""
    """Letters of options without a value."""

    takes_version: bool = False
    arguments: tuple[int, int] = (1, 1)


COMMANDS: Final = {
    "ls": Usage("ls [-R] [PATH]", "list the children of a znode; -R: all paths below it", "R", False, (0, 1)),
    "get": Usage("get [-s] PATH", "print a znode's data; -s: and its metadata", "s"),
    "set": Usage("set [-v VERSION] PATH DATA", "replace a znode's data", "", True, (2, 2)),
    "create": Usage(
        "create [-s] [-p] PATH [DATA]",
        "create a znode; -s: sequential, -p: and its parents",
        "sp",
        False,
        (1, 2),
    ),
    "rm": Usage("rm [-r] [-v VERSION] PATH", "delete a znode; -r: and everything below it", "r", True),
    "stat": Usage("stat PATH", "print a znode's metadata"),
    "cd": Usage("cd [PATH]", "change the znode that relative paths start from", "", False, (0, 1)),
    "help": Usage("help", "print this list", "", False, (0, 0)),
    "quit": Usage("quit", "leave the shell; so does the end of the input", "", False, (0, 0)),
}


@dataclass(frozen=True, slots=True)
class ChangeDirectory:
    """Relative paths start from here now."""

    path: str


@dataclass(frozen=True, slots=True)
class Help:
    """Show the commands."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave."""


ShellCommand = TreeCommand | ChangeDirectory | Help | Quit


def absolute(path: str, directory: str) -> str:
    """Return a path of the tree: relative ones start from `directory`; ``.`` and ``..`` are resolved.

    >>> absolute("../topics/", "/brokers/ids")
    '/brokers/topics'
    """
    names: list[str] = [] if path.startswith("/") else directory.strip("/").split("/")
    for name in path.split("/"):
        if name == "..":
            names = names[:-1]
        elif name not in ("", "."):
            names.append(name)
    return "/" + "/".join(name for name in names if name)


def parse_line(line: str, directory: str) -> ShellCommand | None:
    """Return the command of a line, None for an empty one.

    Raises:
        ShellLineError: the line is no command.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise ShellLineError(f"{line!r}: {error}; close the quote") from None
    if not words:
        return None
    name, *rest = words
    name = "quit" if name == "exit" else name
    usage = COMMANDS.get(name)
    if usage is None:
        raise ShellLineError(f"{name} is no command; known are {', '.join(COMMANDS)}")
    flags, version, arguments = _options(usage, rest)
    least, most = usage.arguments
    if not least <= len(arguments) <= most:
        raise ShellLineError(f"{name} takes another number of arguments; usage: {usage.form}")
    path = absolute(arguments[0] if arguments else ".", directory)
    data = arguments[1].encode() if len(arguments) > 1 else b""
    match name:
        case "ls":
            return Ls(path, "R" in flags)
        case "get":
            return Get(path, "s" in flags)
        case "set":
            return Set(path, data, version)
        case "create":
            return CreateNode(path, data, "s" in flags, "p" in flags)
        case "rm":
            return Rm(path, "r" in flags, version)
        case "stat":
            return StatOf(path)
        case "cd":
            return ChangeDirectory(path if arguments else "/")
        case "help":
            return Help()
    return Quit()


def _options(usage: Usage, words: list[str]) -> tuple[set[str], int, list[str]]:
    flags: set[str] = set()
    version = ANY_VERSION
    arguments: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            arguments += waiting
        elif usage.takes_version and word == "-v":
            text = next(waiting, "")
            if not text.isdecimal():
                raise ShellLineError(f"-v takes a version, a number from 0; found {text!r}")
            version = int(text)
        elif len(word) == 2 and word[0] == "-" and word[1] in usage.flags:
            flags.add(word[1])
        elif word.startswith("-") and len(word) > 1 and not arguments:
            raise ShellLineError(f"{word} is no option here; usage: {usage.form}")
        else:
            arguments.append(word)
    return flags, version, arguments


def completions(before: str, directory: str, children: Callable[[str], Iterable[str]]) -> list[str]:
    """Return what the word at the end of `before` can become: a command, or a path.

    Args:
        before: the line up to the cursor.
        directory: where relative paths start.
        children: returns the names below a path, none if it does not exist.
    """
    words = before.split(" ")
    word = words[-1]
    if len([each for each in words[:-1] if each]) == 0:
        return [f"{name} " for name in COMMANDS if name.startswith(word)]
    parent, slash, beginning = word.rpartition("/")
    shown = parent + slash
    above = absolute(shown or ".", directory)
    return [
        shown + name + ("/" if _has_children(child_path(above, name), children) else " ")
        for name in children(above)
        if name.startswith(beginning)
    ]


def _has_children(path: str, children: Callable[[str], Iterable[str]]) -> bool:
    return any(True for _ in children(path))
