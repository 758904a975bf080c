"""The group `kalda pipeline`; importing this module adds its verbs.

Each verb is a module beside this one and imports what moves data only when it runs: `kalda --help` and
`kalda pipeline --help` load neither Spark nor Arrow. A new verb is a new module and a line in `_VERBS`.
"""

from importlib import import_module
from typing import Final

from kalda.tools.pipeline.noun import pipeline

_VERBS: Final = (
    "init",
    "validate",
    "preview",
    "test",
    "run",
    "status",
    "compact",
    "dlq",
    "export_sdp",
    "repair",
    "audit",
    "replay",
    "pass_over",
)

for _verb in _VERBS:
    import_module(f"kalda.tools.pipeline.{_verb}")

__all__ = ["pipeline"]
