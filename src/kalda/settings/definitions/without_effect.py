"""Loads ``without_effect.tsv``, the table of the settings that Kalda accepts but that nothing reads.

Each row names the missing feature of Kafka that explains why the setting has no effect, and the values that
are refused because a broker that ignored them would be less protected than its operator believes. The other
columns are the fields of `ConfigKey`, spelled as on the reference page. A change that implements a feature
moves its rows to a class of `definitions`.
"""

from pathlib import Path
from typing import Final

from kalda.common.config_def import (
    NON_EMPTY,
    ConfigKey,
    ConfigType,
    Importance,
    MissingFeature,
    UpdateMode,
    Validator,
    at_least,
    between,
    list_of,
    one_of,
)
from kalda.settings.definitions.validators import KAFKA_VERSION, MINUS_ONE_OR_POSITIVE

KRAFT: Final = "KRaft"

_CONSEQUENCES: Final = {
    KRAFT: "Kalda coordinates brokers through ZooKeeper's protocol",
    "classes of logins": "mechanisms are those that `sasl.enabled.mechanisms` takes",
    "policies": "nothing checks what clients create and alter",
    "principal builder classes": "principals are those of Kafka's default builder",
    "quota callbacks": "quotas are those that are set for users, client ids and addresses",
    "the JVM's TLS": "OpenSSL does not load it",
    "OCSP": "revoked certificates are accepted unless a revocation list names them",
}
"""What the absence means for the user, by feature; of those with refused values."""

_VALIDATORS: Final = {
    validator.allowed: validator for validator in (KAFKA_VERSION, MINUS_ONE_OR_POSITIVE, NON_EMPTY)
}


def settings_without_effect() -> list[ConfigKey]:
    """Read the table."""
    rows = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    return [_key(*row.split("\t")) for row in rows[1:]]


def _key(
    name: str,
    config_type: str,
    default: str,
    takes: str,
    importance: str,
    update: str,
    listed: str,
    feature: str,
    refused: str,
    documentation: str,
) -> ConfigKey:
    parsed_type = ConfigType[config_type.upper()]
    return ConfigKey(
        name=name,
        type=parsed_type,
        default=None if default == "not set" else parsed_type.parse(default),
        documentation=documentation,
        importance=Importance(importance),
        validator=_validator(takes),
        update_mode=UpdateMode(update),
        internal=listed == "internal",
        requires=MissingFeature(feature, _CONSEQUENCES[feature]) if refused else None,
        harmless=() if refused == "all" else None,
        without_effect=feature,
    )


def _validator(takes: str) -> Validator | None:
    match takes.replace(",", "").split():
        case []:
            return None
        case ["at", "least", low]:
            return at_least(int(low))
        case [low, "to", high]:
            return between(int(low), float(high) if "." in high else int(high))
        case ["one", "of", *words]:
            return one_of(*words)
        case ["a", "list", "of", *words]:
            return list_of(*words)
        case _:
            return _VALIDATORS[takes]
