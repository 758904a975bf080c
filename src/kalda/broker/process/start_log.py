"""Logs the first lines of a process: its name, its directory and the settings that are not defaults."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kalda import __version__

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Announcement:
    """The first lines of a process's log; `config.summary` makes `differing` and `without_effect`."""

    what: str
    differing: Sequence[str]
    without_effect: Sequence[str] = ()

    def log(self, directory: Path) -> None:
        """Log one line, and a warning if settings have no effect."""
        settings = (
            f"settings that differ from the defaults: {', '.join(self.differing)}"
            if self.differing
            else "all settings have their defaults"
        )
        logger.info("Kalda %s, %s, directory %s; %s", __version__, self.what, directory.absolute(), settings)
        if self.without_effect:
            logger.warning(
                "these settings have no effect in Kalda and are ignored: %s", ", ".join(self.without_effect)
            )
