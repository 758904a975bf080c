"""Regular expressions of schemas, run with a bound on the steps and the memory that a hostile one takes."""

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import jsonschema_rs

_BACKTRACKS_MAX: Final = 10_000
_PROGRAM_BYTES_MAX: Final = 1 << 20
_CACHED: Final = 1_000


def is_match(pattern: str, text: str) -> bool:
    """Return whether a pattern matches somewhere in a text; one that cannot be run to its end does not."""
    compiled = _compiled(pattern)
    return compiled is not None and compiled.is_valid(text)


@lru_cache(_CACHED)
def _compiled(pattern: str) -> "jsonschema_rs.Draft7Validator | None":
    import jsonschema_rs

    options = jsonschema_rs.FancyRegexOptions(
        backtrack_limit=_BACKTRACKS_MAX, size_limit=_PROGRAM_BYTES_MAX, dfa_size_limit=_PROGRAM_BYTES_MAX
    )
    try:
        return jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=options, offline=True)
    except jsonschema_rs.ValidationError:
        return None
