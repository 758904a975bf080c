"""Reads ``KALDA_PORTABLE``, which makes `kalda.runtime.system` do without epoll, sendfile and the like.

The modules beside this one ask the system for each of these and fall back without it. With ``KALDA_PORTABLE``
set they fall back everywhere, so that the tests of a machine that has them reach the fallbacks.
"""

import os
from typing import Final

PORTABLE: Final = os.environ.get("KALDA_PORTABLE", "") not in ("", "0")
"""Read at import, as classes are made then."""
