"""Declares the messages: one module per API key with its request, its response and what each version changed.

Names are those of Apache's schemas in snake_case. The package does not encode or decode:
`kalda.protocol.codec` does, from the declarations. The modules import `kalda.protocol.schema` and
`kalda.common`; `kalda.protocol.registry` imports each when it is first used, and this package imports none of
them.
"""

from typing import Final

AUTHORIZED_OPERATIONS_UNKNOWN: Final = -0x80000000
"""Stands in an authorised-operations bit set when the client did not ask for it (KIP-430)."""
