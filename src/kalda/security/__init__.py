"""Decides who a client is and what it may do: TLS, SASL, access control, quotas.

Everything here is sans-IO: handshakes, rules and rates take bytes or values and return decisions. `kalda.net`
moves the bytes, `kalda.broker` asks for the decisions.
"""
