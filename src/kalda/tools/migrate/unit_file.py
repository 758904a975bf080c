"""The unit file of systemd that runs Kalda in the place of a broker of Kafka."""

_UNIT = """\
# Runs Kalda with the settings and the log directories of the broker of Apache Kafka on this host.
[Unit]
Description=Kalda broker
After=network-online.target
Wants=network-online.target
# Never both at once: they have the same directories and addresses.
Conflicts={kafka_unit}

[Service]
Type=exec
# The user that owns the log directories of Kafka.
User=kafka
ExecStart=/opt/kalda/bin/kalda broker --config {config} --dir {directory}
Restart=on-failure
RestartPreventExitStatus=2
RestartSec=2
KillMode=mixed
TimeoutStopSec=90
LimitNOFILE=100000
StateDirectory=kalda

[Install]
WantedBy=multi-user.target
"""


def unit_text(config: str, kafka_unit: str) -> str:
    """Return the unit file.

    Args:
        config: the path of the brokers' ``server.properties``.
        kafka_unit: the unit of Kafka, which must not run beside it.
    """
    return _UNIT.format(config=config, kafka_unit=kafka_unit, directory="/var/lib/kalda")
