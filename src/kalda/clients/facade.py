"""Holds what all clients share, and derives the methods of synchronous clients from asynchronous ones.

A synchronous client decides nothing: it runs the methods of an asynchronous object on a loop thread.
`blocking` gives it such a method with its name, signature and docstring, so both classes document and type
one interface in one place.
"""

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class ConnectedClient:
    """Base of all clients; it makes them refuse to be pickled."""

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        article = "an" if name.startswith("A") else "a"
        raise TypeError(f"{article} {name} cannot be pickled: it has connections; create one in each process")


class AsyncClient(ConnectedClient):
    """Base of the asynchronous clients."""

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client."""
        raise NotImplementedError


class BlockingClient(ConnectedClient, Generic[A_co]):
    """Base of the synchronous clients: `_run` runs coroutines of `_inner`, which is an `A_co`."""

    _inner: A_co

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client."""
        raise NotImplementedError

    def _run(self, coroutine: Coroutine[Any, Any, T], *args: Any, **options: Any) -> T:
        """Run a coroutine on the loop thread and wait for it; `options` are those of `blocking`."""
        raise NotImplementedError


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]], **options: Any
) -> Callable[Concatenate[BlockingClient[A], P], T]:
    """Return the synchronous form of a method, which waits for the result.

    `options` go to the `_run` of the client.
    """
    name = method.__name__

    def call(self: BlockingClient[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        # Looked up: what runs on the loop thread may override it.
        coroutine: Coroutine[Any, Any, T] = getattr(self._inner, name)(*args, **kwargs)
        return self._run(coroutine, **options)

    update_wrapper(call, method)
    return call
