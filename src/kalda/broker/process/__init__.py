"""Runs brokers and the coordination server as operating system processes: arguments, directories, signals.

It is not the broker itself, which is `kalda.broker.server`. It calls that server, `kalda.zookeeper.server`
(the coordination server) and `kalda.zookeeper.client` (the session), and uses `kalda.settings`, the start
error of `context`, and the machine in `kalda.runtime.system`; `kalda.cli` calls it.
"""
