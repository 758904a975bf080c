"""Reads a JAAS login file: the users of a ZooKeeper server, and the name with which a client logs in.

Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_alice="secret" user_bob="other";
};
Client {
  org.apache.zookeeper.server.auth.DigestLoginModule required username="alice" password="secret";
};
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")

LOGIN_FILE: Final = "java.security.auth.login.config"
"""The setting that names the file; for Java it is a system property."""

DIGEST_MODULE: Final = "DigestLoginModule"
"""The only login module that is served, by the last part of its class name."""

USER_PREFIX: Final = "user_"

_TOKEN: Final = re.compile(
    r"""(?:\s|//[^\n]*|/\*.*?\*/|\#[^\n]*)*
        (?:"(?P<quoted>(?:\\.|[^"\\\n])*)"|'(?P<single>[^'\n]*)'|(?P<mark>[={};])|(?P<word>[^\s"'={};]+)|$)""",
    re.DOTALL | re.VERBOSE,
)
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


class LoginFileError(ValueError):
    """A file is not a JAAS login file, or lacks what is needed; the message has no value of an option."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module of a section."""

    name: str
    """The last part of the class that Java loads."""
    options: Mapping[str, str] = field(repr=False)


def parse_login_file(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """Return the modules of each section.

    Raises:
        LoginFileError: the text is malformed.
    """
    tokens = _Tokens(text)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    while tokens.has_more:
        name = tokens.text("the name of a section")
        tokens.mark("{")
        modules = []
        while not tokens.skip("}"):
            modules.append(_module(tokens))
        tokens.mark(";")
        if name in sections:
            raise LoginFileError(f"the section {name} is there twice")
        sections[name] = tuple(modules)
    return sections


def server_users(text: str, section: str) -> dict[str, str]:
    """Return names and passwords of the users that a server's section lists.

    Raises:
        LoginFileError: the file is malformed, or the section has no user.
    """
    options = _digest_options(text, section)
    users = {
        name.removeprefix(USER_PREFIX): password
        for name, password in options.items()
        if name.startswith(USER_PREFIX)
    }
    if not users:
        raise LoginFileError(f'the section {section} has no user; write user_NAME="PASSWORD"')
    return users


def client_login(text: str, section: str) -> tuple[str, str]:
    """Return the user name and the password of a client's section.

    Raises:
        LoginFileError: the file is malformed, or the section has no name or no password.
    """
    options = _digest_options(text, section)
    if "username" not in options or "password" not in options:
        raise LoginFileError(f'the section {section} needs username="…" and password="…"')
    return options["username"], options["password"]


def load(path: str, read: Callable[[str], bytes], parse: Callable[[str], T]) -> T:
    """Read a login file and return what `parse` makes of its text.

    Raises:
        LoginFileError: the file cannot be read, or `parse` refuses it; the message names the file.
    """
    try:
        return parse(read(path).decode())
    except (LoginFileError, UnicodeDecodeError) as error:
        raise LoginFileError(f"`{LOGIN_FILE}`={path} cannot be used: {error}") from None
    except OSError as error:
        raise LoginFileError(f"`{LOGIN_FILE}`={path} cannot be read: {error.strerror}") from None


def _digest_options(text: str, section: str) -> Mapping[str, str]:
    modules = parse_login_file(text).get(section)
    if not modules:
        raise LoginFileError(f"it has no section {section} with a login module")
    (module, *others) = modules
    if others or module.name != DIGEST_MODULE:
        names = ", ".join(each.name for each in modules)
        raise LoginFileError(f"the section {section} has {names}; it takes one {DIGEST_MODULE}")
    return module.options


def _module(tokens: "_Tokens") -> LoginModule:
    name = tokens.text("a login module")
    flag = tokens.text("the flag of a login module")
    if flag.lower() not in _FLAGS:
        raise LoginFileError(f"behind the login module {name}, one of {', '.join(_FLAGS)} is missing")
    options: dict[str, str] = {}
    while not tokens.skip(";"):
        option = tokens.text("the name of an option")
        tokens.mark("=")
        options[option] = tokens.text(f"the value of {option}")
    return LoginModule(name.rpartition(".")[2], options)


class _Tokens:
    """The words, quoted texts and marks of a file, front to back; comments are left out."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[bool, str, int]] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise LoginFileError(f"line {_line(text, position)} has a quote or a comment without an end")
            if match.lastgroup is not None:
                value = match[match.lastgroup]
                if match.lastgroup == "quoted":
                    value = re.sub(r"\\(.)", r"\1", value)
                line = _line(text, match.start(match.lastgroup))
                self._tokens.append((match.lastgroup == "mark", value, line))
            position = match.end()
        self._position = 0

    @property
    def has_more(self) -> bool:
        return self._position < len(self._tokens)

    def skip(self, mark: str) -> bool:
        """Skip a mark if it comes next; return whether it did."""
        is_next = self.has_more and self._tokens[self._position][:2] == (True, mark)
        self._position += is_next
        return is_next

    def mark(self, mark: str) -> None:
        if not self.skip(mark):
            raise LoginFileError(f"{self._where()} has no {mark}")

    def text(self, meaning: str) -> str:
        if not self.has_more or self._tokens[self._position][0]:
            raise LoginFileError(f"{self._where()} lacks {meaning}")
        self._position += 1
        return self._tokens[self._position - 1][1]

    def _where(self) -> str:
        return f"line {self._tokens[self._position][2]}" if self.has_more else "the end of the file"


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
