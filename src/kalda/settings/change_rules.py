"""The rules of changes of settings while the cluster runs: pure functions.

`config_admin` applies them to requests of clients; the tools apply them to settings in ZooKeeper while no
broker runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.common.config_def import HIDDEN, ConfigDef, ConfigError, ConfigType, UpdateMode
from kalda.common.config_values import AlterConfigOpType
from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.wire_format import STRING_BYTES_MAX
from kalda.settings.broker_config import LISTENER_PREFIX, base_name, find_key
from kalda.settings.definitions import OF_LISTENERS
from kalda.settings.stored_passwords import is_password

_OF_ONE_BROKER: Final = (
    "advertised.listeners",
    "cordoned.log.dirs",
    "listener.security.protocol.map",
    "listeners",
)


@dataclass(frozen=True, slots=True)
class ConfigChangeRequest:
    """A change of one setting; DELETE ignores `value`."""

    name: str
    operation: AlterConfigOpType
    value: str | None


def changed_settings(
    stored: Mapping[str, str], changes: Iterable[ConfigChangeRequest], definitions: ConfigDef
) -> dict[str, str]:
    """Return the stored settings after the changes.

    APPEND and SUBTRACT change lists, starting from the default if nothing is stored (KIP-339):
    ``cleanup.policy`` unset, APPEND ``compact`` -> ``delete,compact``.

    Raises:
        ApiError: INVALID_CONFIG, a list operation on a setting that is not a list, or that makes it too long.
    """
    changed = dict(stored)
    for change in changes:
        if change.operation is AlterConfigOpType.DELETE:
            changed.pop(change.name, None)
            continue
        assert change.value is not None, f"{change.name} has no value"
        if change.operation is AlterConfigOpType.SET:
            changed[change.name] = change.value
            continue
        key = definitions.keys.get(change.name)
        if key is None or key.type is not ConfigType.LIST:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"`{change.name}` is not a list, so {change.operation.name.lower()} is not possible.",
            )
        text = changed.get(change.name, key.format(key.default) or "")
        current = text.split(",") if text else []
        operands = change.value.split(",")
        if change.operation is AlterConfigOpType.APPEND:
            current += [operand for operand in operands if operand not in current]
        else:
            current = [element for element in current if element not in operands]
        changed[change.name] = ",".join(current)
        if len(changed[change.name].encode()) > STRING_BYTES_MAX:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"`{change.name}` would have {len(changed[change.name])} characters; a text may have "
                f"{STRING_BYTES_MAX} bytes at most, or nobody could read it.",
            )
    return changed


def require_values(changes: Sequence[ConfigChangeRequest]) -> None:
    """Check that each setting is named once, and that it has a value where one is needed.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "A setting is named twice for one resource.")
    without = [
        change.name
        for change in changes
        if change.value is None and change.operation is not AlterConfigOpType.DELETE
    ]
    if without:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"A value is missing for: {', '.join(without)}")


def require_dynamic(name: str, *, is_default: bool) -> None:
    """Check that a setting can change while a broker runs, and for all brokers at once if it should.

    Raises:
        ConfigError: it cannot.
    """
    key = find_key(name)
    of_listener = name.startswith(LISTENER_PREFIX)
    # A listener that is added brings its own settings; `BrokerListeners` checks that others keep theirs.
    is_of_listener = of_listener and base_name(name) in OF_LISTENERS
    if key.update_mode is UpdateMode.READ_ONLY and not is_of_listener:
        raise ConfigError(
            name, f"`{name}` cannot change while the broker runs; set it in its file and restart"
        )
    if key.update_mode is not UpdateMode.CLUSTER_WIDE:
        if is_default:
            raise ConfigError(name, f"`{name}` can be changed per broker only; name the broker's id")
        # All others are security settings, which Kafka changes for one listener of one broker at a time.
        if not of_listener and name not in _OF_ONE_BROKER:
            raise ConfigError(
                name, f"`{name}` can be changed per listener only; write {LISTENER_PREFIX}<name>."
            )


def check_cleaner_threads(current: int, wanted: int) -> None:
    """Check that the number of cleaner threads changes by a factor of two at most, as in Kafka.

    Raises:
        ConfigError: it changes by more, or becomes 0.
    """
    name = "log.cleaner.threads"
    if wanted == current:
        return
    low, high = max(1, current // 2), 2 * current
    if not low <= wanted <= high:
        raise ConfigError(
            name, f"`{name}`={wanted} is not allowed: from {current} it may go to {low} to {high} at a time"
        )


def loggable(changes: Iterable[ConfigChangeRequest]) -> list[str]:
    """Return changes for a line of the log; passwords are hidden."""
    return [
        f"{each.operation.name.lower()} {each.name}={HIDDEN if is_password(each.name) else each.value}"
        for each in changes
    ]
