"""Writes a table of settings in Markdown from their declarations, for the reference pages."""

from collections.abc import Callable, Iterable, Mapping

from kalda.common.config_def import ConfigKey


def config_table(definitions: Iterable[ConfigKey], columns: Mapping[str, Callable[[ConfigKey], str]]) -> str:
    """Return the table of all settings that are not internal, by name.

    Args:
        definitions: The settings.
        columns: Columns beside name, default, values and description: the title, and the cell of a setting.
    """
    titles = ["Setting", "Default", "Takes", *columns, "What it does"]
    lines = [f"| {' | '.join(titles)} |", f"| {' | '.join('---' for _ in titles)} |"]
    for key in sorted(definitions, key=lambda key: key.name):
        if key.internal:
            continue
        cells = (
            f"`{key.name}`",
            _default(key),
            key.allowed,
            *(cell(key) for cell in columns.values()),
            key.documentation,
        )
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def effect(key: ConfigKey) -> str:
    """Return whether the setting has an effect, or which missing feature it belongs to."""
    if key.without_effect is None:
        return "**yes**"
    return f"refused: {key.requires.name}" if key.requires is not None else f"no: {key.without_effect}"


def _default(key: ConfigKey) -> str:
    text = key.format(key.default)
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"
