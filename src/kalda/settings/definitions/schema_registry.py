"""Declares how a broker reaches the schema registry that it checks records with. All are Kalda's own."""

from kalda.common.config_def import at_least, between
from kalda.common.settings import LOW, Settings, integer, password, string, string_list


class SchemaRegistryConfig(Settings):
    """The registry of topics with `kalda.schema.validation.key` or `kalda.schema.validation.value`."""

    kalda_schema_registry_url = string_list(
        None,
        "Addresses of schema registries with Confluent's API, e.g. `http://127.0.0.1:8081`; the next one is "
        "asked where one does not answer. Topics can have their records checked only where it is set.",
    )
    kalda_schema_registry_basic_auth_user_info = password(
        None, "`NAME:PASSWORD` that the broker sends to the registry (HTTP's basic authentication)."
    )
    kalda_schema_registry_bearer_auth_token = password(
        None, "The token that the broker sends to the registry, where it sends no name and password."
    )
    kalda_schema_registry_cache_size = integer(
        10_000,
        "Schemas that the broker keeps; the oldest ones are looked up again.",
        at_least(1),
        importance=LOW,
    )
    kalda_schema_registry_missing_ttl_ms = integer(
        5_000,
        "How long the broker believes that the registry has no schema of an id, or that a subject does not "
        "have it.",
        at_least(0),
        importance=LOW,
    )
    kalda_schema_registry_timeout_ms = integer(
        5_000, "How long a registry may be silent.", between(1, 60_000), importance=LOW
    )
    kalda_schema_registry_wait_max_ms = integer(
        10_000,
        "How long a Produce request waits for a schema that the broker does not have; then its producer is "
        "to send it again.",
        between(1, 300_000),
        importance=LOW,
    )
    kalda_schema_registry_ssl_key_password = password(
        None, "Password of the private key towards the registry."
    )
    kalda_schema_registry_ssl_keystore_location = string(
        None, "The broker's key and certificate towards the registry."
    )
    kalda_schema_registry_ssl_keystore_password = password(
        None, "Password of the key store towards the registry."
    )
    kalda_schema_registry_ssl_keystore_type = string("PEM", "JKS, PKCS12 or PEM.")
    kalda_schema_registry_ssl_truststore_location = string(
        None, "The authorities of the registry's certificate; the system's where not set."
    )
    kalda_schema_registry_ssl_truststore_password = password(
        None, "Password of the trust store towards the registry."
    )
    kalda_schema_registry_ssl_truststore_type = string("PEM", "JKS, PKCS12 or PEM.")
