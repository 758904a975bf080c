"""The first lines of a process's log: what it is, where its data is, how it differs from the defaults."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kalda import __version__

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a process logs before all else. `differing` and `without_effect` come from `config.summary`."""

    what: str
    differing: Sequence[str]
    without_effect: Sequence[str] = ()

    def log(self, directory: Path) -> None:
        """Log one line, and one warning where there are settings that have no effect."""
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
