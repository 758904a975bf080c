"""Defines `Pending`, a one-shot result without a task or a future, returned by delayed operations.

It uses no event loop and no clock: the code that completes a `Pending` runs its callbacks.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kalda.common.errors import ApiError

T = TypeVar("T")
R = TypeVar("R")


class Pending(Generic[T]):
    """A one-shot value that arrives later: a future without the event loop's queue in between.

    Callbacks run inside `complete`, in the order they were added; one that is added afterwards runs at once.
    """

    __slots__ = ("_callbacks", "_value", "error", "is_done", "on_abandoned")

    def __init__(self) -> None:
        self.is_done = False
        self.error: Exception | None = None
        self.on_abandoned: Callable[[], None] | None = None
        """Set by the code that completes it, until it does; called when no caller waits any more: the peer is
        gone."""
        self._value: T | None = None
        self._callbacks: list[Callable[[Pending[T]], None]] = []

    @classmethod
    def of(cls, value: T) -> "Pending[T]":
        """Return one that is completed with `value`."""
        pending = cls()
        pending.complete(value)
        return pending

    @property
    def value(self) -> T:
        """The value; only once `is_done`.

        Raises:
            Exception: what `fail` was called with.
        """
        assert self.is_done, "the value is not there yet"
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]  # done and not failed: the value was set

    def complete(self, value: T) -> None:
        """Give the value; exactly once."""
        assert not self.is_done, "a pending value is completed once"
        self._value = value
        self._finish()

    def fail(self, error: Exception) -> None:
        """Give an error instead of the value; exactly once."""
        assert not self.is_done, "a pending value is completed once"
        if isinstance(error, ApiError):
            # An answer, not a fault. Its traceback would hold frames that hold this object: a cycle for every
            # request that is refused, which only the garbage collector could take away.
            error.__traceback__ = None
        self.error = error
        self._finish()

    def add_done(self, callback: "Callable[[Pending[T]], None]") -> None:
        """Call `callback` with this object when it is done."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def then(self, make: "Callable[[Pending[T]], R]") -> "Pending[R]":
        """Return one that completes with the result of `make(self)`, or fails with the exception it raises.

        `make` is called when this one is done. If it reads `value`, a failure of this one is passed on.
        """
        made: Pending[R] = Pending()

        def on_done(done: Pending[T]) -> None:
            try:
                value = make(done)
            except Exception as error:
                made.fail(error)
            else:
                made.complete(value)

        self.add_done(on_done)
        return made

    def abandon(self) -> None:
        """Call `on_abandoned`: no caller waits for the value any more."""
        if not self.is_done and self.on_abandoned is not None:
            self.on_abandoned()

    def _finish(self) -> None:
        self.is_done = True
        # It may refer to the operation that completes this, and so to this.
        self.on_abandoned = None
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


def gather(parts: Sequence[Pending[T]], combine: Callable[[list[Pending[T]]], R]) -> Pending[R]:
    """Return one that completes with `combine(parts)`, failed parts included, once the last part is done."""
    last: Pending[None] = Pending()
    missing = len(parts)

    def on_part(_: Pending[T]) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            last.complete(None)

    for part in parts:
        part.add_done(on_part)
    if not parts:
        last.complete(None)
    return last.then(lambda _: combine(list(parts)))
