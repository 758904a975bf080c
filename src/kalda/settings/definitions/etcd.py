"""Declares which engine keeps what the cluster knows, and the settings of the connection to etcd."""

from kalda.common.settings import HIGH, Settings, password, string


class CoordinationConfig(Settings):
    """The settings of the engine that keeps the cluster's metadata, if not ZooKeeper. All are Kalda's own."""

    coordination_connect = string(
        None,
        "The engine of the cluster: `etcd://host:port[,host:port…][/prefix]` or "
        "`zookeeper://host:port[,host:port…][/chroot]`, which is the same as `zookeeper.connect`. All "
        "brokers of a cluster name the same. Kalda's own.",
        importance=HIGH,
    )
    etcd_user = string(None, "The user of the login at etcd; no login where not set. Kalda's own.")
    etcd_password = password(None, "The password of `etcd.user`. Kalda's own.")
    etcd_ssl_truststore_location = string(
        None,
        "The authorities of etcd's certificates, in PEM; setting it connects over TLS. Kalda's own.",
    )
    etcd_ssl_keystore_location = string(
        None,
        "The broker's certificate towards etcd and its key, without a password, in one file in PEM; it "
        "connects over TLS. Kalda's own.",
    )
