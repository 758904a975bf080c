"""Resolves the configuration and mode of a subject: its own, its context's, the global ones, defaults."""

from typing import Final

from kalda.http.registry.contents import Json
from kalda.http.registry.state import Mode, State
from kalda.http.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, Subject

LEVEL: Final = "compatibilityLevel"

_INHERITED: Final = (
    "normalize",
    "validateFields",
    "validateNewSchemas",
    "validateRules",
    "compatibilityPolicy",
    "compatibilityGroup",
)
"""What a subject's configuration takes from that of the whole registry where it has no value of its own."""

_GLOBAL: Final = f":{GLOBAL_CONTEXT}:"


def own_config(state: State, subject: str | None, default_level: str) -> Json | None:
    """Return the configuration of a subject, context or, for None, the registry; None if it has none."""
    found = state.configs.get(subject)
    if found is not None:
        return {LEVEL: default_level, **found}
    if subject is None or Subject.parse(subject).context == GLOBAL_CONTEXT:
        return {LEVEL: default_level}
    return None


def config_in_scope(state: State, subject: str | None, default_level: str) -> Json:
    """Return the configuration that holds for a subject."""
    own = own_config(state, subject, default_level)
    if subject is not None and own is not None:
        top = own_config(state, None, default_level) or {}
        return {**{name: top[name] for name in _INHERITED if name in top}, **own}
    for key in _places(subject):
        if key in state.configs:
            return {LEVEL: default_level, **state.configs[key]}
    return {LEVEL: default_level}


def own_mode(state: State, subject: str | None) -> Mode | None:
    """Return the mode of a subject, context or, for None, the registry; None if it has none."""
    found = state.modes.get(subject)
    if found is not None:
        return found
    if subject is None or Subject.parse(subject).context == GLOBAL_CONTEXT:
        return Mode.READWRITE
    return None


def mode_in_scope(state: State, subject: str | None) -> Mode:
    """Return the mode that holds for a subject."""
    for key in (subject, *_places(subject)):
        if key in state.modes:
            return state.modes[key]
    return Mode.READWRITE


def alias_of(state: State, subject: str) -> str:
    """Return the subject that a name stands for: another one, if its configuration has an alias."""
    alias = state.configs.get(subject, {}).get("alias")
    if not isinstance(alias, str) or not alias:
        return subject
    target = Subject.parse(alias)
    if target.context != DEFAULT_CONTEXT:
        return str(target)
    return str(Subject(Subject.parse(subject).context, target.name))


def _places(subject: str | None) -> tuple[str | None, ...]:
    """Return where to look after the subject itself."""
    context = DEFAULT_CONTEXT if subject is None else Subject.parse(subject).context
    return (None if context == DEFAULT_CONTEXT else f":{context}:", _GLOBAL)
