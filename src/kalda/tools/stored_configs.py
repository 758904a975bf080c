"""Describes and alters brokers' settings in ZooKeeper itself: `kalda configs --zookeeper`.

As in Kafka's tool it is possible only while the brokers do not run, so that passwords of brokers are stored,
encrypted, before the first start. Settings ``password.encoder.…`` say how; they are not stored.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.zookeeper_session import open_zookeeper
from kalda.tools.config_entities import Entities, EntityType

if TYPE_CHECKING:
    from kalda.clients.admin.configs import AlterConfigOp
    from kalda.cluster.cluster_store import ClusterStore
    from kalda.settings.stored_passwords import StoredPasswords

_ENCODER_PREFIX: Final = "password.encoder."
_TIMEOUT_MS: Final = 10_000


async def describe_in_zookeeper(servers: str, wanted: Entities) -> dict[str, dict[str, str | None]]:
    """Return the stored settings by broker, "" for the default of all; None stands for a password.

    Raises:
        ToolUsageError: settings of others than brokers are wanted.
        ToolError: a broker runs, or ZooKeeper fails.
    """
    from kalda.settings.stored_passwords import is_password

    names = _broker_names(wanted)
    found: dict[str, dict[str, str | None]] = {}
    async with open_zookeeper("--zookeeper", servers, _TIMEOUT_MS) as client:
        store = _store(client)
        await _require_stopped(store, names)
        for name in names:
            settings = await store.config("brokers", _entity(name))
            found[name] = {key: None if is_password(key) else text for key, text in settings.items()}
    return found


async def alter_in_zookeeper(
    servers: str, wanted: Entities, changes: "Sequence[AlterConfigOp]", *, is_dry: bool
) -> list[str]:
    """Change the stored settings of brokers, each alone; return their names, "" for the default of all.

    Raises:
        ToolUsageError: settings of others than brokers would change.
        ToolError: a change is not allowed, a broker runs, or ZooKeeper fails.
    """
    names = _broker_names(wanted)
    passwords, changes = _split_encoder(changes)
    async with open_zookeeper("--zookeeper", servers, _TIMEOUT_MS, restricts_access=True) as client:
        store = _store(client)
        await _require_stopped(store, names)
        if not is_dry:
            await store.ensure_layout()
        for name in names:
            stored = await store.config("brokers", _entity(name))
            changed = _changed(stored, changes, passwords, is_default=not name)
            if not is_dry:
                await store.set_config("brokers", _entity(name), changed)
    return names


def _store(client: object) -> "ClusterStore":
    from kalda.cluster.cluster_store import ClusterStore
    from kalda.runtime.system.clock import SystemClock
    from kalda.runtime.system.random import SYSTEM_RANDOM
    from kalda.zookeeper.client.ensemble_client import EnsembleClient

    assert isinstance(client, EnsembleClient)
    return ClusterStore(client, SystemClock(), SYSTEM_RANDOM)


def _broker_names(wanted: Entities) -> list[str]:
    if wanted.kind is not EntityType.BROKERS:
        raise ToolUsageError(
            "--zookeeper serves settings of brokers that do not run; use --bootstrap-server for "
            f"{wanted.kind}"
        )
    if wanted.is_default:
        return [""]
    if not wanted.names:
        raise ToolUsageError("--zookeeper needs --broker, --broker-defaults or --entity-name")
    return [str(int(name)) for name in wanted.names]


def _entity(name: str) -> str:
    from kalda.cluster import paths

    return name or paths.DEFAULT_ENTITY


async def _require_stopped(store: "ClusterStore", names: Sequence[str]) -> None:
    from kalda.cluster import paths

    if await store.zookeeper.exists(paths.BROKER_IDS) is None:
        return
    running = await store.brokers()
    for name in names:
        found = sorted(running) if not name else [each for each in running if str(each) == name]
        if found:
            raise ToolError(
                f"broker {', '.join(map(str, found))} is running, and --zookeeper is only for settings of "
                "brokers that do not run; use --bootstrap-server"
            )


def _split_encoder(
    changes: "Sequence[AlterConfigOp]",
) -> "tuple[StoredPasswords, list[AlterConfigOp]]":
    """Take the settings of the encryption out of the changes."""
    from kalda.common.config_def import ConfigError
    from kalda.common.config_values import AlterConfigOpType
    from kalda.settings import BrokerConfig
    from kalda.settings.stored_passwords import StoredPasswords

    rest, encoder = [], {}
    for change in changes:
        if not change.name.startswith(_ENCODER_PREFIX):
            rest.append(change)
        elif change.type is AlterConfigOpType.SET and change.value is not None:
            encoder[change.name] = change.value
        else:
            raise ToolUsageError(f"`{change.name}` is not stored, so it can only be given by --add-config")
    if not rest:
        raise ToolUsageError("there is nothing to alter beside `password.encoder.…`, which is not stored")
    try:
        return StoredPasswords(BrokerConfig.from_properties(encoder)), rest
    except ConfigError as error:
        raise ToolUsageError(str(error)) from None


def _changed(
    stored: Mapping[str, str],
    changes: "Sequence[AlterConfigOp]",
    passwords: "StoredPasswords",
    *,
    is_default: bool,
) -> dict[str, str]:
    from kalda.common.config_def import ConfigError
    from kalda.common.config_values import AlterConfigOpType
    from kalda.common.errors import ApiError
    from kalda.settings.broker_config import find_key
    from kalda.settings.change_rules import ConfigChangeRequest, changed_settings, require_dynamic
    from kalda.settings.definitions import BROKER_CONFIG
    from kalda.settings.stored_passwords import SECRET, is_password

    missing = [
        each.name for each in changes if each.type is AlterConfigOpType.DELETE and each.name not in stored
    ]
    if missing:
        raise ToolError(f"--delete-config: {', '.join(missing)} is not stored")
    requests = [ConfigChangeRequest(each.name, each.type, each.value) for each in changes]
    names = {each.name for each in changes if each.type is not AlterConfigOpType.DELETE}
    try:
        changed = changed_settings(stored, requests, BROKER_CONFIG)
        for name in sorted(names):
            require_dynamic(name, is_default=is_default)
            find_key(name).parse(changed[name])
        secret = [name for name in sorted(names) if is_password(name)]
        if secret and not passwords.has_secret:
            raise ToolUsageError(
                f"--add-config must also hold `{SECRET}` to set {', '.join(secret)}; it is not stored"
            )
        return passwords.encoded(changed, stored, {each.name for each in changes})
    except (ConfigError, ApiError) as error:
        raise ToolError(str(error)) from None
