"""Runs `kalda` with every line of its audit in the log, however many one address causes in ten seconds.

    python full_audit.py kalda-arguments...

Tests that look up the line of one login among thousands need them all.
"""

import functools

import kalda.common.logging as kalda_logging
import kalda.security.audit as kalda_audit
from kalda.cli import main
from kalda.common.log_limiter import FloodFilter

LINES_MAX = 1_000_000

if __name__ == "__main__":
    vars(kalda_audit)["LIMIT_BURST"] = LINES_MAX
    vars(kalda_logging)["FloodFilter"] = functools.partial(FloodFilter, burst=LINES_MAX)
    main()
