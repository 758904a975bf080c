"""The synchronous and the asynchronous class, and their settings, are one interface."""

import inspect

import pytest

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.errors import ClientConfigError, IllegalStateError


def public_methods(of: type) -> dict[str, object]:
    return {name: getattr(of, name) for name in dir(of) if not name.startswith("_")}


def test_both_classes_have_the_same_methods_with_the_same_signatures() -> None:
    """A method that is added to one class must not be forgotten in the other."""
    synchronous, asynchronous = public_methods(Admin), public_methods(AsyncAdmin)

    assert sorted(asynchronous) == sorted(synchronous)
    for name, method in asynchronous.items():
        ours = synchronous[name]
        assert callable(method)
        assert callable(ours)
        assert inspect.signature(method) == inspect.signature(ours), name
        assert not inspect.iscoroutinefunction(ours), name
        assert method.__doc__, name
        assert ours.__doc__, name


def test_a_misspelt_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ClientConfigError, match="did you mean `request_timeout_ms`"):
        AsyncAdmin(bootstrap_servers="localhost:9092", request_timeout=5)  # type: ignore[call-arg]
    with pytest.raises(ClientConfigError, match=r"did you mean `request\.timeout\.ms`"):
        AsyncAdmin.from_config({"bootstrap.servers": "localhost:9092", "request.timeout": "5"})


def test_dotted_names_are_accepted() -> None:
    with Admin.from_config({"bootstrap.servers": "localhost:9092", "request.timeout.ms": "5"}):
        pass


def test_a_closed_client_says_so() -> None:
    admin = Admin(bootstrap_servers="localhost:9092")
    admin.close()
    admin.close()

    with pytest.raises(IllegalStateError, match="closed"):
        admin.list_topics()


async def test_a_closed_async_client_says_so() -> None:
    async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
        pass

    with pytest.raises(IllegalStateError, match="closed"):
        await admin.list_topics()
