"""Reads what `from_config` of every client takes: a mapping with Kafka's dotted names, or a properties file.

It does not know settings; `CommonClientConfig` checks names and values.
"""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from kalda.clients.argument_checks import a_type
from kalda.clients.errors import ClientConfigError
from kalda.common.properties import PropertiesError, read_properties

PropertiesSource = Mapping[str, object] | str | PathLike[str]
"""A mapping, or the path of a file such as ``client.properties``."""


def properties_of(source: PropertiesSource) -> Mapping[str, object]:
    """Return the settings of a mapping or a file.

    Raises:
        ClientConfigError: the file cannot be read, or the argument is neither.
    """
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, str | PathLike):
        raise ClientConfigError(
            f"{source!r} is {a_type(source)}; it takes a mapping with Kafka's names, or the path of "
            "a properties file"
        )
    try:
        return read_properties(Path(source))
    except (OSError, PropertiesError) as error:
        raise ClientConfigError(f"the properties file {source} cannot be read: {error}") from error
