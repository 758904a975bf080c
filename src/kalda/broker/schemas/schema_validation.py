"""Inspects the records that clients append to topics with `kalda.schema.validation.key` or `…value`."""

from collections.abc import Coroutine, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from kalda.broker.schemas.registry_lookups import LookupLimits, RegistryLookups
from kalda.common.config_def import ConfigError
from kalda.records.batch import BatchHeader
from kalda.records.compression import Checkpoint
from kalda.records.errors import InvalidRecordError
from kalda.records.record import iter_decompressed_records
from kalda.runtime.runtime import Runtime
from kalda.schemas.payloads.record_check import WANTED_MAX, FieldCheck, Findings, ValidationMode, Wanted
from kalda.schemas.payloads.subjects import SubjectNameStrategy
from kalda.settings import BrokerConfig
from kalda.storage.errors import InspectionUnavailableError, LookupNeededError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_resources import RecordsInspection

if TYPE_CHECKING:
    import ssl

RECORD_ERRORS_MAX: Final = 1_000
"""The refused records that a response names at most, each with a sentence."""
_RECORDS_AT_ONCE: Final = 64
"""Records between two checkpoints: some 0.2 ms."""
_PREFIX: Final = "kalda.schema.registry."


class SchemaValidation:
    """Creates the inspections of topics, and holds the objects that they share.

    Args:
        lookups: What is known of the registry; None if the broker has none.
    """

    def __init__(self, lookups: RegistryLookups | None) -> None:
        self._lookups: Final = lookups

    @classmethod
    def build(cls, config: BrokerConfig, runtime: Runtime) -> "SchemaValidation":
        """Make it by the settings.

        Raises:
            ConfigError: An address, the credentials or a key store of the registry cannot be used.
        """
        urls = config.kalda_schema_registry_url
        if not urls:
            return cls(None)
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ConfigError(f"{_PREFIX}url", f"`{_PREFIX}url`={url} is no address with http or https")
        # Imported only when needed: a broker without a registry starts faster.
        from kalda.broker.schemas.registry_reader import RegistryReader
        from kalda.net.schema_registry import RegistryConnection

        limits = LookupLimits(
            config.kalda_schema_registry_cache_size,
            config.kalda_schema_registry_missing_ttl_ms / 1000,
            config.kalda_schema_registry_wait_max_ms / 1000,
        )
        connection = RegistryConnection(
            urls, _authorization(config), config.kalda_schema_registry_timeout_ms / 1000, _tls(config)
        )
        reader = RegistryReader(connection)
        return cls(RegistryLookups(reader.read, runtime.clock, runtime.background, limits))

    def inspection(self, topic: str, config: LogConfig) -> RecordsInspection | None:
        """Return what inspects the records of a topic; None where nothing is checked."""
        key = _field_check(
            topic,
            config.kalda_schema_validation_key,
            config.kalda_schema_key_subject_name_strategy,
            is_key=True,
        )
        value = _field_check(
            topic,
            config.kalda_schema_validation_value,
            config.kalda_schema_value_subject_name_strategy,
            is_key=False,
        )
        return None if key is None and value is None else _TopicInspection(topic, key, value, self._lookups)

    def background(self) -> Sequence[Coroutine[object, object, None]]:
        """Return the work that runs until it is cancelled."""
        return [] if self._lookups is None else [self._lookups.run()]


class _TopicInspection:
    """Checks the records of one topic."""

    def __init__(
        self, topic: str, key: FieldCheck | None, value: FieldCheck | None, lookups: RegistryLookups | None
    ) -> None:
        self._topic: Final = topic
        self._key: Final = key
        self._value: Final = value
        self._lookups: Final = lookups

    def inspect(self, header: BatchHeader, records: bytes, checkpoint: Checkpoint) -> None:
        """Check the records of a batch; see `RecordsInspection`."""
        lookups = self._lookups
        if lookups is None:
            raise InspectionUnavailableError(
                f"the topic {self._topic} checks its records, and this broker has no `{_PREFIX}url`"
            )
        faults: dict[int, str] = {}
        wanted: set[Wanted] = set()
        fault_count = first = 0
        found = iter_decompressed_records(records, header)
        while chunk := list(islice(found, _RECORDS_AT_ONCE)):
            checkpoint(len(records))
            findings = Findings()
            if self._key is not None:
                self._key.check([record.key for record in chunk], lookups, findings)
            if self._value is not None:
                self._value.check([record.value for record in chunk], lookups, findings)
            fault_count += len(findings.faults)
            if len(faults) < RECORD_ERRORS_MAX:
                faults.update((first + index, findings.faults[index]) for index in sorted(findings.faults))
            if len(wanted) < WANTED_MAX:
                wanted |= findings.wanted
            first += len(chunk)
        if faults:
            raise _refusal(faults, fault_count, first)
        if wanted:
            problem = lookups.problem()
            if problem is not None:
                raise InspectionUnavailableError(f"schemas cannot be looked up; retry: {problem}")
            raise LookupNeededError(partial(lookups.wait, wanted))


def _refusal(faults: dict[int, str], fault_count: int, count: int) -> InvalidRecordError:
    index, reason = next(iter(faults.items()))
    return InvalidRecordError(
        f"{fault_count} of {count} records fail the topic's schema validation; "
        f"first: record {index}, {reason}",
        record_errors=tuple(islice(faults.items(), RECORD_ERRORS_MAX)),
    )


def _field_check(topic: str, mode: str, strategy: str, *, is_key: bool) -> FieldCheck | None:
    if mode == ValidationMode.OFF:
        return None
    return FieldCheck(topic, ValidationMode(mode), SubjectNameStrategy(strategy), is_key=is_key)


def _authorization(config: BrokerConfig) -> str | None:
    user_info, token = (
        config.kalda_schema_registry_basic_auth_user_info,
        config.kalda_schema_registry_bearer_auth_token,
    )
    if user_info is not None and token is not None:
        raise ConfigError(
            f"{_PREFIX}bearer.auth.token",
            f"`{_PREFIX}basic.auth.user.info` and `{_PREFIX}bearer.auth.token` are both set; set one",
        )
    if user_info is not None:
        if ":" not in user_info:
            raise ConfigError(
                f"{_PREFIX}basic.auth.user.info",
                f"`{_PREFIX}basic.auth.user.info` has no colon: NAME:PASSWORD",
            )
        from kalda.net.schema_registry import basic_authorization

        return basic_authorization(user_info)
    return None if token is None else f"Bearer {token}"


def _tls(config: BrokerConfig) -> "ssl.SSLContext | None":
    if not any(url.startswith("https://") for url in config.kalda_schema_registry_url or ()):
        return None
    from kalda.security.tls.contexts import client_context
    from kalda.security.tls.settings import TlsSettings, TlsSettingsError

    values = {
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.key.password": config.kalda_schema_registry_ssl_key_password,
        "ssl.keystore.location": config.kalda_schema_registry_ssl_keystore_location,
        "ssl.keystore.password": config.kalda_schema_registry_ssl_keystore_password,
        "ssl.keystore.type": config.kalda_schema_registry_ssl_keystore_type,
        "ssl.truststore.location": config.kalda_schema_registry_ssl_truststore_location,
        "ssl.truststore.password": config.kalda_schema_registry_ssl_truststore_password,
        "ssl.truststore.type": config.kalda_schema_registry_ssl_truststore_type,
    }
    try:
        return client_context(TlsSettings.read(values.get))
    except TlsSettingsError as error:
        raise ConfigError(f"{_PREFIX}{error.setting}", f"`{_PREFIX}{error.setting}`: {error}") from None
