"""What a broker has before it is assembled: identity, settings and logs, its service tasks and its health.

The builders of the parts of a broker start from here. It uses `config` and `metadata`.
"""
