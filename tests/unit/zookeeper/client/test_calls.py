"""Calls that are awaited together."""

import asyncio

from kalda.zookeeper.client.calls import Call, group_calls
from kalda.zookeeper.errors import ConnectionLossError
from kalda.zookeeper.protocol.client_requests import Request
from kalda.zookeeper.protocol.op_codes import OpCode

REQUEST = Request(OpCode.PING)


async def test_group_collects_results_and_errors_by_their_places() -> None:
    calls = [Call(REQUEST, f"/{number}", lambda reader: reader) for number in range(3)]
    group = group_calls(calls)
    wait = asyncio.ensure_future(group.wait())
    await asyncio.sleep(0)
    calls[2].succeed(42)
    error = ConnectionLossError("gone", "/0")
    calls[0].fail(error)
    assert not wait.done()
    calls[1].succeed(2)
    assert [error, 2, 42] == await wait
    assert [] == await group_calls([]).wait()


async def test_cancelled_group_takes_late_answers_without_harm() -> None:
    calls = [Call(REQUEST, "/a", lambda reader: reader)]
    group = group_calls(calls)
    wait = asyncio.ensure_future(group.wait())
    await asyncio.sleep(0)
    wait.cancel()
    await asyncio.gather(wait, return_exceptions=True)
    assert calls[0].is_abandoned
    calls[0].succeed(1)


async def test_only_reads_that_somebody_awaits_are_sent_again_and_once() -> None:
    read = Call(Request(OpCode.GET_DATA), "/a", lambda reader: reader)

    def again() -> bool:
        return read.may_be_sent_again

    assert not again(), "it sets a watch again, which the next connection does anew"
    write = Call(Request(OpCode.SET_DATA), "/a", lambda reader: reader)
    wait = asyncio.ensure_future(group_calls([read, write]).wait())
    await asyncio.sleep(0)
    assert again()
    assert not write.may_be_sent_again
    read.was_lost = True
    assert not again(), "a response that breaks each connection would come for ever"
    read.was_lost = False
    wait.cancel()
    await asyncio.gather(wait, return_exceptions=True)
    assert not again()
