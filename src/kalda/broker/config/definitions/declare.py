"""The words that the declarations of settings are written with."""

import sys
from typing import Final

from kalda.common.config_def import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    MissingFeature,
    UpdateMode,
    Validator,
    matches,
)

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = sys.float_info.max

KAFKA_VERSION: Final = matches(
    r"[0-9]+\.[0-9]+(\.[0-9]+)?(-IV[0-9]+)?", "a version of Kafka, e.g. 3.9 or 3.9-IV0"
)
MINUS_ONE_OR_POSITIVE: Final = Validator(
    "-1 or at least 1", lambda value: isinstance(value, int) and (value == -1 or value >= 1)
)
GZIP_LEVEL: Final = Validator(
    "-1 or 1 to 9", lambda value: isinstance(value, int) and (value == -1 or 1 <= value <= 9)
)
THROTTLED_REPLICAS: Final = matches(r"\*|[0-9]+:[0-9]+", "a list of partition:broker pairs, or *")


ACCESS_CONTROL: Final = MissingFeature("access control", "every client may do everything")
CONNECTION_LIMITS: Final = MissingFeature("a limit on the rate of connections", "any rate is accepted")
COORDINATION_ACLS: Final = MissingFeature(
    "access lists in ZooKeeper", "every client of ZooKeeper may change what the brokers write"
)
COORDINATION_TLS: Final = MissingFeature("TLS towards ZooKeeper", "that connection is plaintext")
DELEGATION_TOKENS: Final = MissingFeature("delegation tokens", "clients are not authenticated")
LISTENER_LIMITS: Final = MissingFeature(
    "limits for single listeners", "only the limit for the whole broker counts"
)
POLICIES: Final = MissingFeature("policies", "nothing checks what clients create and alter")
QUOTAS: Final = MissingFeature("quotas", "clients are not limited")
SASL: Final = MissingFeature("SASL", "clients are not authenticated")
TLS: Final = MissingFeature("TLS", "connections are plaintext and clients are not authenticated")
KRAFT: Final = MissingFeature("KRaft", "Kalda coordinates brokers through ZooKeeper's protocol")


def setting(
    name: str,
    config_type: ConfigType,
    default: ConfigValue,
    documentation: str,
    validator: Validator | None = None,
    *,
    importance: Importance = Importance.MEDIUM,
    update_mode: UpdateMode = UpdateMode.READ_ONLY,
    internal: bool = False,
    requires: MissingFeature | None = None,
    harmless: tuple[ConfigValue, ...] | None = None,
) -> ConfigKey:
    """Declare one setting; short, because there are hundreds."""
    return ConfigKey(
        name=name,
        type=config_type,
        default=default,
        documentation=documentation,
        importance=importance,
        validator=validator,
        update_mode=update_mode,
        internal=internal,
        requires=requires,
        harmless=harmless,
    )
