"""Maps setting names of other clients to Kalda's, for the error about an unknown name.

The names are those of kafka-python and aiokafka, and of librdkafka (confluent-kafka) with underscores in
place of the dots. A setting of the same name and meaning is none of these. Another name is not accepted: two
names for one thing could contradict each other.
"""

from collections.abc import Mapping
from typing import Final

SETTINGS: Final[Mapping[str, str]] = {
    # kafka-python and aiokafka.
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "sasl_kerberos_name": "sasl_kerberos_service_name",
    "ssl_cafile": "ssl_ca_location",
    "ssl_certfile": "ssl_keystore_location",
    "ssl_keyfile": "ssl_keystore_location",
    "ssl_password": "ssl_key_password",
    "ssl_ciphers": "ssl_cipher_suites",
    "ssl_crlfile": "ssl_ca_location",
    "ssl_check_hostname": "ssl_endpoint_identification_algorithm",
    "rebalance_timeout_ms": "max_poll_interval_ms",
    "max_batch_size": "batch_size",
    "bootstrap_timeout_ms": "bootstrap_wait_ms",
    # librdkafka.
    "metadata_broker_list": "bootstrap_servers",
    "message_max_bytes": "max_request_size",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "socket_timeout_ms": "request_timeout_ms",
    "socket_send_buffer_bytes": "send_buffer_bytes",
    "socket_receive_buffer_bytes": "receive_buffer_bytes",
    "ssl_key_location": "ssl_keystore_location",
    "ssl_certificate_location": "ssl_keystore_location",
    "ssl_key_pem": "ssl_keystore_key",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_crl_location": "ssl_ca_location",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "queue_buffering_max_ms": "linger_ms",
    "queue_buffering_max_kbytes": "buffer_memory",
    "queue_buffering_max_messages": "buffer_memory",
    "message_send_max_retries": "retries",
    "message_timeout_ms": "delivery_timeout_ms",
    "request_required_acks": "acks",
    "compression_codec": "compression_type",
    "batch_num_messages": "batch_size",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "auto_commit_enable": "enable_auto_commit",
    "queued_max_messages_kbytes": "fetch_max_bytes",
}
"""The setting here that does the same, or most of it."""

REMARKS: Final[Mapping[str, str]] = {
    "api_version": "the client asks each broker for its versions; leave it out",
    "api_version_request": "the client asks each broker for its versions; leave it out",
    "broker_version_fallback": "the client asks each broker for its versions; leave it out",
    "consumer_timeout_ms": "give `poll` its time: `consumer.poll(timeout_s=5)`",
    "default_offset_commit_callback": "give `commit_async` a callback",
    "offset_commit_cb": "give `commit_async` a callback",
    "rebalance_cb": "give `subscribe` a listener, `ConsumerRebalanceListener`",
    "dr_cb": "give `send` a callback, `on_delivery`",
    "dr_msg_cb": "give `send` a callback, `on_delivery`",
    "on_delivery": "give `send` a callback, `on_delivery`",
    "error_cb": "errors are raised by the call that they concern, and logged by `logging`",
    "stats_cb": "`metrics()` returns the figures",
    "statistics_interval_ms": "`metrics()` returns the figures",
    "log_cb": "the client logs by Python's `logging`, below the logger `kalda`",
    "log_level": "the client logs by Python's `logging`, below the logger `kalda`",
    "logger": "the client logs by Python's `logging`, below the logger `kalda`",
    "debug": "set the level of Python's logger `kalda` to DEBUG",
    "enable_auto_offset_store": "set `enable_auto_commit` to False, and call `commit` with offsets",
    "enable_partition_eof": "compare `position` with `end_offsets`",
    "ssl_context": "give files: `ssl_ca_location`, `ssl_keystore_location`",
    "enable_ssl_certificate_verification": "certificates are always checked; see `ssl_ca_location`",
    "sasl_oauth_token_provider": "tokens come from `sasl_oauthbearer_token_endpoint_url`",
    "oauth_cb": "tokens come from `sasl_oauthbearer_token_endpoint_url`",
    "sasl_kerberos_domain_name": "the broker's host name is used; leave it out",
    "sasl_kerberos_principal": "name it in `sasl_jaas_config`",
    "sasl_kerberos_keytab": "name it in `sasl_jaas_config`",
    "metric_group_prefix": "metrics have the names of Kafka's; leave it out",
    "metrics_enabled": "metrics are always there, by `metrics()`; leave it out",
    "enable_incremental_fetch_sessions": "fetch sessions are used with brokers that have them; leave it out",
    "kafka_client": "the client makes its own connections; leave it out",
    "selector": "the client uses asyncio's; leave it out",
    "socket_options": "set `send_buffer_bytes` and `receive_buffer_bytes`; TCP_NODELAY is always set",
    "socket_nagle_disable": "TCP_NODELAY is always set; leave it out",
    "socks5_proxy": "the client connects directly; proxies are not supported",
    "proxy_url": "the client connects directly; proxies are not supported",
    "receive_message_max_bytes": "responses are bounded by `fetch_max_bytes`; leave it out",
}
"""What to do instead where no setting does the same."""
