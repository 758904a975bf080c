"""Checks the requests of a broker by what their handlers declare, as in Kafka's ``KafkaApis``."""

from types import GeneratorType
from typing import Any, Final

from kalda.broker.requests.api import RequestContext
from kalda.broker.requests.checks.check import Call, CheckParts
from kalda.common.turns import Steps, result_of


class RequestAccess:
    """Checks the requests of one broker."""

    def __init__(self, parts: CheckParts) -> None:
        self._parts: Final = parts

    def before(self, context: RequestContext) -> Any:
        """Check the decoded request of a context; return a response if it is refused, else None.

        The request may be replaced by one without what is denied, and what `after` must do is kept. Where
        the check has many names, the result is steps that return the response or None.
        """
        check = context.api.handler.access
        if check is None:
            return None
        call = Call(self._parts, context, context.message, [])
        refused = check(call)
        if isinstance(refused, GeneratorType):
            return _rest(call, refused)
        return _checked(call, refused)

    def after(self, context: RequestContext, response: object) -> None:
        """Complete the response of the handler."""
        if getattr(context, "amends", None):
            result_of(self.after_in_steps(context, response))

    def after_in_steps(self, context: RequestContext, response: object) -> Steps[None]:
        """Do what `after` does in steps."""
        amends = getattr(context, "amends", None)
        if amends:
            context.amends = None
            for amend in amends:
                steps = amend(response)
                if steps is not None:
                    yield from steps


def _rest(call: Call[Any], check: Steps[Any]) -> Steps[Any]:
    return _checked(call, (yield from check))


def _checked(call: Call[Any], refused: Any) -> Any:
    call.context.message = call.request
    call.context.amends = call.amends if refused is None else None
    return refused
