"""The messages, one module per API key with its request, its response and what each version changed.

Names are those of Apache's schemas in snake_case. Modules are imported by `kalda.protocol.registry` when
first used; this package imports none of them.
"""

from typing import Final

AUTHORIZED_OPERATIONS_UNKNOWN: Final = -0x80000000
"""Stands in an authorised-operations bit set when the client did not ask for it (KIP-430)."""
