"""What is asked of servers: paths below a chroot, and what no server would take."""

import pytest

from kalda.zookeeper.client.request_translation import REQUEST_BYTES_MAX, Chroot, split_chroot
from kalda.zookeeper.errors import BadArgumentsError
from kalda.zookeeper.port import Check, Create, Delete, Operation, SetData


@pytest.mark.parametrize(
    ("hosts", "servers", "chroot"),
    [
        ("a:1,b:2", "a:1,b:2", ""),
        ("a:1/", "a:1", ""),
        ("a:1,b:2/kafka/one", "a:1,b:2", "/kafka/one"),
        ("a:1/kafka/", "a:1", "/kafka"),
    ],
)
def test_addresses_and_chroot(hosts: str, servers: str, chroot: str) -> None:
    found_servers, found = split_chroot(hosts)
    assert (servers, chroot) == (found_servers, found.path)


@pytest.mark.parametrize("hosts", ["", "  ", "/kafka", "a:1//x", "a:1/./x"])
def test_what_is_no_list_of_addresses_is_named(hosts: str) -> None:
    with pytest.raises(BadArgumentsError, match=r"zookeeper\.connect"):
        split_chroot(hosts)


@pytest.mark.parametrize("chroot", ["", "/kafka", "/kafka/one"])
@pytest.mark.parametrize("path", ["/", "/a", "/a/b"])
def test_a_path_comes_back_as_it_went(chroot: str, path: str) -> None:
    names = Chroot(chroot)
    full = names.full(path)
    assert full.startswith(chroot or "/")
    assert path == names.stripped(full)


@pytest.mark.parametrize(
    "operation",
    [
        Create("a", b""),
        Create("/a", bytes(REQUEST_BYTES_MAX)),
        SetData("/a", bytes(REQUEST_BYTES_MAX)),
        SetData("/a/", b""),
        Delete("/a", -2),
        Check("/a", 2**31),
    ],
)
def test_what_a_server_would_hang_up_on_is_refused(operation: Operation) -> None:
    with pytest.raises(BadArgumentsError):
        Chroot("/kafka").request(operation)


def test_a_transaction_says_which_operation_is_to_blame() -> None:
    """Each for itself is small enough here, all of them are not."""
    half = Create("/a", bytes(REQUEST_BYTES_MAX // 2))
    with pytest.raises(BadArgumentsError) as caught:
        Chroot("").transaction([half, Delete("/b"), half])
    assert 2 == caught.value.operation_index
