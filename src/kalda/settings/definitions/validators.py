"""Holds the validators that several declarations share."""

import sys
from typing import Final

from kalda.common.config_def import Validator, matches
from kalda.protocol.releases import find_release, release_names

DOUBLE_MAX: Final = sys.float_info.max

KAFKA_VERSION: Final = matches(
    r"[0-9]+\.[0-9]+(\.[0-9]+)?(-IV[0-9]+)?", "a version of Kafka, e.g. 3.9 or 3.9-IV0"
)
RELEASE: Final = Validator(
    f"one of {', '.join(release_names())}",
    lambda value: value is None or (isinstance(value, str) and find_release(value) is not None),
)
MINUS_ONE_OR_POSITIVE: Final = Validator(
    "-1 or at least 1", lambda value: isinstance(value, int) and (value == -1 or value >= 1)
)
GZIP_LEVEL: Final = Validator(
    "-1 or 1 to 9", lambda value: isinstance(value, int) and (value == -1 or 1 <= value <= 9)
)
THROTTLED_REPLICAS: Final = matches(r"\*|[0-9]+:[0-9]+", "a list of partition:broker pairs, or *")
