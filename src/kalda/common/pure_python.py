"""Reads ``KALDA_PURE_PYTHON``, which makes Kalda run plain Python in the place of its compiled modules.

``KALDA_PURE_PYTHON=1`` makes every package of Kalda leave its compiled modules unused, to compare results and
speed or to exclude compiled code as the cause of a fault. The packages decide what follows; this module reads
the variable.
"""

import os
from typing import Final

PURE_PYTHON_VARIABLE: Final = "KALDA_PURE_PYTHON"

is_pure_wanted: Final = os.environ.get(PURE_PYTHON_VARIABLE, "") not in ("", "0")
"""Whether compiled code stays unused in this process; read once, at the import."""
