"""A value that arrives later, without a task or a future: what delayed operations hand to whoever waits.

It knows no loop and no clock: whoever completes it runs the callbacks.
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
        """Set by whoever completes it: called when nobody waits any more, because the peer is gone."""
        self._value: T | None = None
        self._callbacks: list[Callable[[Pending[T]], None]] = []

    @classmethod
    def of(cls, value: T) -> "Pending[T]":
        """Return one whose value is there already."""
        pending = cls()
        pending.complete(value)
        return pending

    @property
    def value(self) -> T:
        """The value, once it is there.

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
        """Have `callback` called with this object when it is done."""
        if self.is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def then(self, make: "Callable[[Pending[T]], R]") -> "Pending[R]":
        """Return one that gets what `make` makes of this one when it is done, or fails with what that raises.

        Where `make` takes the `value`, a failure is thus passed on.
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
        """Say that nobody waits for the value any more."""
        if not self.is_done and self.on_abandoned is not None:
            self.on_abandoned()

    def _finish(self) -> None:
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


def gather(parts: Sequence[Pending[T]], combine: Callable[[list[Pending[T]]], R]) -> Pending[R]:
    """Complete with what `combine` makes of the parts, failed ones included, once the last is done."""
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
