"""The interactive shell: reads lines, executes them, completes commands and paths with the tab key.

The event loop of the session runs on a thread of its own, which keeps the session alive while the terminal
waits for input.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from kalda.clients.loop_thread import LoopThread
from kalda.command.output import Output
from kalda.tools.zk.shell_lines import (
    COMMANDS,
    ChangeDirectory,
    Help,
    Quit,
    ShellCommand,
    ShellLineError,
    completions,
    parse_line,
)
from kalda.tools.zk.tree_commands import run
from kalda.zookeeper.errors import NoNodeError, SessionExpiredError, ZooKeeperError
from kalda.zookeeper.port import ZooKeeperClient


class Shell:
    """One session of the shell on one client, whose event loop `loop` runs."""

    def __init__(self, loop: LoopThread, client: ZooKeeperClient, address: str, output: Output) -> None:
        self._loop: Final = loop
        self._client: Final = client
        self._address: Final = address
        self._output: Final = output
        self._directory = "/"
        self._candidates: list[str] = []
        self.is_interactive: Final = sys.stdin.isatty()
        self.failures = 0
        """Lines that failed; a script that reads commands from a file exits with 1 if there is one."""

    @property
    def prompt(self) -> str:
        """What stands in front of the cursor."""
        return f"{self._address} {self._directory}> "

    def read_lines(self) -> None:
        """Read and execute lines until the input ends or `quit`; without a terminal there is no prompt."""
        with self._completion() if self.is_interactive else contextlib.nullcontext():
            while True:
                try:
                    line = input(self.prompt if self.is_interactive else "")
                except EOFError:
                    if self.is_interactive:
                        print()
                    return
                except KeyboardInterrupt:
                    print()  # Ctrl-C drops the line, as in other shells
                    continue
                if not self.execute_line(line):
                    return

    def execute_line(self, line: str) -> bool:
        """Execute a line; return whether the shell goes on."""
        try:
            command = parse_line(line, self._directory)
            return command is None or self._execute(command)
        except SessionExpiredError as error:
            self._fail(f"{error}; start the shell again")
            return False
        except (ShellLineError, ZooKeeperError) as error:
            self._fail(str(error))
            return True

    def _execute(self, command: ShellCommand) -> bool:
        match command:
            case Quit():
                return False
            case Help():
                width = max(len(usage.form) for usage in COMMANDS.values())
                for usage in COMMANDS.values():
                    self._output.item(
                        {"usage": usage.form, "help": usage.help}, f"{usage.form:{width}}  {usage.help}"
                    )
            case ChangeDirectory():
                if self._loop.call(self._client.exists(command.path)) is None:
                    raise NoNodeError(f"{command.path} does not exist", command.path)
                self._directory = command.path
            case _:
                shown = self._loop.call(run(self._client, command))
                self._output.item(shown.document, "\n".join(shown.lines))
        self._output.flush()
        return True

    def _fail(self, message: str) -> None:
        self.failures += 1
        self._output.flush()
        self._output.failure(message)

    # Completion.

    @contextlib.contextmanager
    def _completion(self) -> Iterator[None]:
        try:
            import readline
        except ImportError:  # this Python was built without it: lines can be typed, not completed
            yield
            return
        delimiters = readline.get_completer_delims()
        readline.set_completer_delims(" ")
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")
        readline.set_auto_history(True)
        try:
            yield
        finally:
            readline.set_completer(None)
            readline.set_completer_delims(delimiters)

    def _complete(self, word: str, state: int) -> str | None:
        """Return the candidate number `state`, None behind the last one; the interface of `readline`."""
        import readline

        if state == 0:
            before = readline.get_line_buffer()[: readline.get_endidx()]
            self._candidates = completions(before, self._directory, self._children)
        return self._candidates[state] if state < len(self._candidates) else None

    def _children(self, path: str) -> Iterable[str]:
        try:
            return self._loop.call(self._client.children(path))
        except ZooKeeperError:
            return ()  # completion is silent where it knows nothing
