"""Turns what the admin client returns, a result or an error for each thing, into lines and JSON."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kalda.command.errors import PartialFailureError
from kalda.command.output import Json, Output

if TYPE_CHECKING:
    from kalda.clients.errors import ClientError


def error_json(error: "ClientError | None") -> Json:
    """Return an error as JSON: the broker's code, if it sent one, and the message; null for none."""
    if error is None:
        return None
    return {"code": error.code.name if error.code is not None else None, "message": str(error)}


def raise_for(output: Output, errors: "Mapping[str, ClientError] | Iterable[ClientError]") -> None:
    """Write one line for each error; call it when the results are written.

    Raises:
        PartialFailureError: there is an error.
    """
    found = list(errors.values() if isinstance(errors, Mapping) else errors)
    if not found:
        return
    output.flush()
    for error in found:
        output.failure(str(error))
    raise PartialFailureError
