"""Parses subjects with contexts: ``:.context:subject``, and ``subject`` in the default context ``.``."""

from dataclasses import dataclass
from typing import Final, Self

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
"""Its configuration and mode hold for all contexts that have none of their own."""

WILDCARD: Final = ":*:"
"""As a prefix, subjects of all contexts."""

_PREFIX: Final = ":."
_RESERVED: Final = ("__GLOBAL", "__EMPTY")


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """A subject and its context.

    >>> Subject.parse(":.staging:orders-value")
    Subject(context='.staging', name='orders-value')
    >>> str(Subject.parse(":.:orders-value"))
    'orders-value'
    """

    context: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a subject as it stands in a path; a context alone has an empty name."""
        if text.startswith(_PREFIX):
            context, _, name = text[1:].partition(":")
            return cls(context, name)
        if text.startswith(WILDCARD):
            return cls("*", text.removeprefix(WILDCARD))
        return cls(DEFAULT_CONTEXT, text)

    def __str__(self) -> str:
        return f"{self.context_prefix}{self.name}"

    @property
    def context_prefix(self) -> str:
        """``:.context:``, and empty for the default context."""
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    @property
    def is_default_context(self) -> bool:
        """Whether it names the default context as a whole."""
        return self.context == DEFAULT_CONTEXT and not self.name

    @property
    def is_global_context(self) -> bool:
        """Whether it names all contexts."""
        return self.context == GLOBAL_CONTEXT and not self.name

    def covers(self, subject: str) -> bool:
        """Return whether a subject is this one, or lies in the context that this names."""
        if str(self) == subject:
            return True
        if self.name:
            return False
        return self.context == GLOBAL_CONTEXT or Subject.parse(subject).context == self.context


def normalized(text: str) -> str:
    """Return the one form of a subject: without the default context."""
    return str(Subject.parse(text))


def in_context_of(parent: str, text: str) -> str:
    """Return a subject that `parent` refers to: in the parent's context, unless it names one itself."""
    subject = Subject.parse(text)
    if subject.context != DEFAULT_CONTEXT:
        return str(subject)
    return str(Subject(Subject.parse(parent).context, subject.name))


def context_prefix(context: str) -> str:
    """Return the prefix of a context that is written with or without colons and its leading dot.

    Raises:
        ValueError: it has a colon inside.
    """
    name = context.removeprefix(":").removesuffix(":")
    if ":" in name:
        raise ValueError(f"Context name '{name}' cannot contain a colon")
    if not name.startswith("."):
        name = f".{name}"
    return "" if name == DEFAULT_CONTEXT else f":{name}:"


def is_valid(text: str, *, is_config: bool = False) -> bool:
    """Return whether a subject may have schemas, or with `is_config` a configuration or a mode."""
    if any(ord(each) < 0x20 or 0x7F <= ord(each) <= 0x9F for each in text):
        return False
    subject = Subject.parse(text)
    if subject.name in _RESERVED:
        return False
    return is_config or subject.context != GLOBAL_CONTEXT
