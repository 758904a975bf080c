"""Declares the settings of TLS, SASL logins and access lists in ZooKeeper, for brokers."""

from kalda.common.settings import HIGH, LOW, Settings, boolean, password, string, string_list


class ZooKeeperSecurityConfig(Settings):
    """Settings of TLS and SASL logins to ZooKeeper, and of access lists on the znodes that brokers create."""

    zookeeper_set_acl = boolean(
        False,
        "Whether what brokers create in ZooKeeper gets access lists: only they change it, everybody may read "
        "it, except users, brokers' settings and delegation tokens. Needs a key store or a SASL login.",
        importance=HIGH,
    )
    zookeeper_ssl_client_enable = boolean(False, "Whether ZooKeeper is reached over TLS.")
    zookeeper_ssl_cipher_suites = string_list(
        None, "Cipher suites of TLS 1.2 towards ZooKeeper; OpenSSL's where not set.", importance=LOW
    )
    zookeeper_ssl_crl_enable = boolean(
        False,
        "Whether ZooKeeper's certificate must not be on a revocation list; the trust store, in PEM, has the "
        "lists.",
        importance=LOW,
    )
    zookeeper_ssl_enabled_protocols = string_list(
        None,
        "TLS versions towards ZooKeeper; `zookeeper.ssl.protocol` and newer where not set.",
        importance=LOW,
    )
    zookeeper_ssl_endpoint_identification_algorithm = string(
        "HTTPS",
        "How the host name in ZooKeeper's certificate is checked; empty does not check.",
        importance=LOW,
    )
    zookeeper_ssl_keystore_location = string(
        None, "The broker's key and certificate towards ZooKeeper: its x509 identity there."
    )
    zookeeper_ssl_keystore_password = password(
        None, "Password of the key store towards ZooKeeper; in PEM that of the private key."
    )
    zookeeper_ssl_keystore_type = string(
        None, "JKS, PKCS12 or PEM; where not set, the file's extension decides."
    )
    zookeeper_ssl_protocol = string("TLSv1.2", "Lowest TLS version towards ZooKeeper.", importance=LOW)
    zookeeper_ssl_truststore_location = string(
        None, "The authorities of ZooKeeper's certificates; the system's where not set."
    )
    zookeeper_ssl_truststore_password = password(None, "Password of the trust store towards ZooKeeper.")
    zookeeper_ssl_truststore_type = string(
        None, "JKS, PKCS12 or PEM; where not set, the file's extension decides."
    )
    java_security_auth_login_config = string(
        None,
        "A JAAS file whose section Client has the name and password of the SASL login at ZooKeeper. Kafka "
        "takes it as a system property of the JVM.",
        internal=True,
    )
    zookeeper_sasl_client = boolean(
        True,
        "Whether the section of the JAAS file is used. Kafka takes it as a system property of the JVM.",
        internal=True,
    )
    zookeeper_sasl_clientconfig = string(
        "Client",
        "The section of the JAAS file. Kafka takes it as a system property of the JVM.",
        internal=True,
    )
