"""The lines of the shell over the tree: what they mean, and what can stand at the cursor."""

import pytest

from kalda.tools.zk.shell_lines import (
    ChangeDirectory,
    Help,
    Quit,
    ShellCommand,
    ShellLineError,
    absolute,
    completions,
    parse_line,
)
from kalda.tools.zk.tree_commands import CreateNode, Get, Ls, Rm, Set, StatOf

TREE = {"/": ["brokers", "config"], "/brokers": ["ids", "topics"], "/brokers/topics": ["a", "ab"]}


def children(path: str) -> list[str]:
    return TREE.get(path, [])


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("ls", Ls("/brokers")),
        ("ls -R /", Ls("/", recursive=True)),
        ("ls ids/", Ls("/brokers/ids")),
        ("get -s ../config", Get("/config", show_stat=True)),
        ("stat .", StatOf("/brokers")),
        ("set ids 'a b'", Set("/brokers/ids", b"a b")),
        ("set -v 3 /x -5", Set("/x", b"-5", 3)),
        ("create /x", CreateNode("/x")),
        ("create -s -p /x/y é", CreateNode("/x/y", "é".encode(), sequential=True, parents=True)),
        ("rm -r -v 2 /x", Rm("/x", recursive=True, version=2)),
        ("rm -- -x", Rm("/brokers/-x")),
        ("cd", ChangeDirectory("/")),
        ("cd topics", ChangeDirectory("/brokers/topics")),
        ("help", Help()),
        ("exit", Quit()),
        ("  # nothing", None),
    ],
)
def test_lines(line: str, command: ShellCommand | None) -> None:
    assert command == parse_line(line, "/brokers")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fly", "fly is no command; known are ls, get"),
        ("get", r"get takes another number of arguments; usage: get \[-s\] PATH"),
        ("rm -f /x", r"-f is no option here; usage: rm \[-r\] \[-v VERSION\] PATH"),
        ("set -v x /a b", "-v takes a version, a number from 0; found 'x'"),
        ("get 'x", "No closing quotation; close the quote"),
    ],
)
def test_a_wrong_line_says_what_is_allowed(line: str, message: str) -> None:
    with pytest.raises(ShellLineError, match=message):
        parse_line(line, "/")


@pytest.mark.parametrize(
    ("path", "directory", "expected"),
    [("/a/./b/../c", "/x", "/a/c"), ("..", "/", "/"), ("", "/x/y", "/x/y"), ("//a//", "/", "/a")],
)
def test_relative_paths(path: str, directory: str, expected: str) -> None:
    assert expected == absolute(path, directory)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", "ls get set create rm stat cd help quit"),
        ("s", "set stat"),
        ("ls /b", "/brokers/"),
        ("ls /brokers/", "/brokers/ids /brokers/topics/"),
        ("get -s topics/a", "topics/a topics/ab"),
        ("get ", "ids topics/"),
        ("get ../co", "../config"),
        ("get /nowhere/x", ""),
    ],
)
def test_completion(before: str, expected: str) -> None:
    """A path that has children ends in a slash, so that the next tab goes on."""
    assert expected.split() == [each.strip() for each in completions(before, "/brokers", children)]
