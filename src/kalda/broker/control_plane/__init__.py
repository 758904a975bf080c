"""Carries the requests between controller and brokers, and applies those that this broker receives.

`channel` sends the controller's requests, `requests` applies them, `request_builders` converts them from and
to messages, `controlled_shutdown` asks the controller to move leaderships. What the controller decides is in
`kalda.controller`. The package uses `config`, `metadata`, `topics` and `replicas`, and `kalda.net.peer`.
"""
