"""Reads ISO-8601 durations such as ``P7D`` or ``PT1H30M``, as java.time.Duration.parse does.

Days, hours, minutes and seconds only: months and years have no fixed length.
"""

import re
from typing import Final

_DURATION: Final = re.compile(
    r"P(?:(?P<days>[+-]?[0-9]{1,12})D)?"
    r"(?P<time>T(?:(?P<hours>[+-]?[0-9]{1,12})H)?(?:(?P<minutes>[+-]?[0-9]{1,12})M)?"
    r"(?:(?P<seconds>[+-]?[0-9]{1,12})(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration, which may be negative; None if the text is no duration.

    >>> parse_duration_ms("PT1H30M"), parse_duration_ms("P1M")
    (5400000, None)
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (found[name] for name in ("days", "hours", "minutes", "seconds"))
    has_time = any(part is not None for part in (hours, minutes, seconds))
    if (found["time"] is not None and not has_time) or (days is None and not has_time):
        return None
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    thousandths = int((found["fraction"] or "").ljust(3, "0")[:3])
    negative = seconds is not None and seconds.startswith("-")
    return whole * 1000 + (-thousandths if negative else thousandths)
