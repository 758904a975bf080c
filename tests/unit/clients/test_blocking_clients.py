"""The synchronous clients have the methods of the asynchronous ones, with the same arguments."""

import inspect

import pytest

from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.consumer import Consumer
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.producer.producer import Producer
from kalda.clients.share.async_share_consumer import AsyncShareConsumer
from kalda.clients.share.share_consumer import ShareConsumer

PAIRS = [(Producer, AsyncProducer), (Consumer, AsyncConsumer), (ShareConsumer, AsyncShareConsumer)]
OF_LOOPS = {"start", "invoke"}
"""Methods that only a client on the program's loop has."""


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")} - OF_LOOPS


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS, ids=lambda each: each.__name__)
def test_both_have_the_same_methods(blocking: type, asynchronous: type) -> None:
    assert public(asynchronous) == public(blocking)


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS, ids=lambda each: each.__name__)
def test_their_methods_take_the_same_arguments(blocking: type, asynchronous: type) -> None:
    different = {}
    for name in public(blocking) - {"from_config"}:
        ours, theirs = (inspect.signature(getattr(each, name)) for each in (blocking, asynchronous))
        if ours.parameters != theirs.parameters:
            different[name] = (ours, theirs)
    assert {} == different


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS, ids=lambda each: each.__name__)
def test_their_methods_return_results_and_no_coroutines(blocking: type, asynchronous: type) -> None:
    coroutines = {name for name in public(blocking) if inspect.iscoroutinefunction(getattr(blocking, name))}
    assert set() == coroutines
    assert set() == {name for name in public(blocking) if not inspect.getdoc(getattr(blocking, name))}
