"""Lets pages of other origins use the gateway, by setting; their scripts can read the errors, too."""

from collections.abc import Sequence
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kalda.clients.errors import ClientError
from kalda.http.errors import HttpError, http_error_of, json_error

EXPOSED: Final = ("Location", "Retry-After")
MAX_AGE_SECONDS: Final = 600


def with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Return an application that pages of some origins may use; ``*`` is any origin, without credentials."""
    is_any = "*" in origins
    return CORSMiddleware(
        _AnsweredErrors(app),
        allow_origins=["*"] if is_any else list(origins),
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["*"],
        allow_credentials=not is_any,
        expose_headers=list(EXPOSED),
        max_age=MAX_AGE_SECONDS,
    )


class _AnsweredErrors:
    """Answers for errors inside of the layer that adds headers; what is not expected passes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, noted)
        except (HttpError, ClientError) as error:
            if has_begun:
                raise
            shown = error if isinstance(error, HttpError) else http_error_of(error)
            await json_error(scope, shown)(scope, receive, send)
