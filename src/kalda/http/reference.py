"""Writes the reference page of the settings of `kalda http` from their declarations.

Run it as ``python -m kalda.http.reference docs/reference``. The page is committed, and a test fails when it
differs from the declarations.
"""

import sys
from pathlib import Path
from typing import Final

from kalda.common.config_tables import config_table
from kalda.http.settings import CallerSettings, HttpSettings, ListenerSettings, RegistrySettings

PAGE: Final = "http-configs.md"

_INTRODUCTION: Final = """\
# Settings of `kalda http`

Give them with `--set NAME=VALUE`, or in a file with `--config FILE`. Names that Confluent's registry has are
Confluent's, so a `schema-registry.properties` can be used: its `kafkastore.` settings of the client are read,
and settings of its own way of working, such as those of Jetty and JMX, are read over with a warning. Any
other name is an error, and the message has the nearest one.

The connections to the cluster have the [settings of clients](client-configs.md), in the file of
`--command-config`, in `--command-property`, or in `--config` behind `kafkastore.`.
"""


def page() -> str:
    """Return the page."""
    sections = (
        ("The listener", ListenerSettings),
        ("Callers", CallerSettings),
        ("The schema registry", RegistrySettings),
    )
    parts = [_INTRODUCTION]
    listed: set[str] = set()
    for title, declaring in sections:
        listed |= declaring.definitions().keys()
        parts += [f"## {title}\n", config_table(declaring.definitions().values(), {})]
    others = [key for attribute, key in HttpSettings.definitions().items() if attribute not in listed]
    if others:
        parts += ["## Others\n", config_table(others, {})]
    return "\n".join(parts)


if __name__ == "__main__":
    (Path(sys.argv[1]) / PAGE).write_text(page(), encoding="utf-8")
