"""The broker: a server that stores partitions, answers Kafka's requests and takes part in a cluster.

`server` starts and stops one broker, `assembly` makes its parts; every other module is in a package, and each
package's opening names the packages that it uses. From the bottom up: `metadata`; `config`; `security`;
`context` and `topics`; `replicas`; `internal_topics`; `groups`, `transactions`, `fetching`, `leases`,
`control_plane` and `telemetry`; `requests`, `metrics` and `logs`. `process` runs brokers as operating system
processes.
The decisions of the controller and of the coordinators are not here but in `kalda.controller` and
`kalda.coordinator`; the log is `kalda.storage`, connections are `kalda.net`.
"""
