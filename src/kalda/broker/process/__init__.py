"""Runs brokers and the coordination server as operating system processes: arguments, signals, exit codes.

It uses `kalda.broker.server` and `config`; no other package of the broker uses it.
"""
