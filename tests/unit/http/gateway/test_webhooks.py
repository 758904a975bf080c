"""Where webhooks may go, how they are signed, and what a subscription may say."""

import ipaddress

import httpcore
import pytest

from kalda.http.gateway.webhooks.addresses import (
    CheckedNetwork,
    ForbiddenAddressError,
    check_url,
    is_allowed,
    parse_networks,
)
from kalda.http.gateway.webhooks.signing import check_secret, new_secret, signature_headers
from kalda.http.gateway.webhooks.subscription import (
    InvalidSubscriptionError,
    Subscription,
    check_no_loop,
    decode_subscription,
    read_subscription,
)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
     "100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "240.0.0.1", "::", "::1",
     "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::",
     "64:ff9b::a9fe:a9fe", "2001:db8::1", "fec0::1"],
)  # fmt: skip
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert not is_allowed(ipaddress.ip_address(address), ())


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_allowed(ipaddress.ip_address(address), ())


def test_a_network_can_be_allowed() -> None:
    allowed = parse_networks(["10.1.0.0/16", "::1/128"])

    assert is_allowed(ipaddress.ip_address("10.1.2.3"), allowed)
    assert is_allowed(ipaddress.ip_address("::ffff:10.1.2.3"), allowed)
    assert is_allowed(ipaddress.ip_address("::1"), allowed)
    assert not is_allowed(ipaddress.ip_address("10.2.0.1"), allowed)


@pytest.mark.parametrize(
    "url",
    [None, "", "example.com", "ftp://example.com/", "file:///etc/passwd", "http://", "http://user@example.com/",
     "http://user:pw@example.com/", "http://example.com:0/", "http://example.com:99999/", "http://[::1/",
     "gopher://x/", "http://ex ample.com/", "http://ü.example/", "http://a/" + "b" * 2000,
     "http://a/\r\nx: y", "https://a/#b",     5],
)  # fmt: skip
def test_urls_that_are_none_are_refused(url: object) -> None:
    with pytest.raises(ForbiddenAddressError):
        check_url(url)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "017700000001", "[::ffff:127.0.0.1]", "0"]
)
async def test_the_address_is_checked_that_is_connected_to(host: str) -> None:
    """Other spellings of a loopback address are what the resolver makes of them."""
    network = CheckedNetwork(())

    with pytest.raises((ForbiddenAddressError, httpcore.ConnectError)) as raised:
        await network.connect_tcp(host.strip("[]"), 80, 5.0)

    assert "not public" in str(raised.value) or "cannot be resolved" in str(raised.value)


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of Standard Webhooks' own libraries."""
    headers = signature_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )

    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == headers["webhook-signature"]


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_!!!", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", None]
)
def test_a_weak_secret_is_refused_and_not_repeated(secret: object) -> None:
    with pytest.raises(ValueError, match="secret is not whsec_"):
        check_secret(secret)


def test_a_new_secret_is_allowed() -> None:
    assert new_secret() != check_secret(new_secret())


def test_a_subscription_is_read_as_it_is_written() -> None:
    subscription = read_subscription(
        "hook",
        {"topic": "t", "url": "https://example.com/x", "where": ["$.a>1"], "format": "value"},
        "User:a",
    )

    assert subscription == decode_subscription("hook", subscription.encode())
    assert "secret" not in subscription.shown()
    assert "t-webhook-dlq" == subscription.dead_letter_topic


@pytest.mark.parametrize(
    ("name", "field", "message"),
    [
        ("../x", {}, "name"),
        ("a", {"topic": "../x"}, "topic="),
        ("a", {"topic": ".."}, "topic="),
        ("a", {"url": "http://u@x/"}, "url="),
        ("a", {"format": "xml"}, "format="),
        ("a", {"attempts_max": 0}, "attempts_max=0"),
        ("a", {"timeout_ms": 1e9}, "timeout_ms="),
        ("a", {"where": ["$$"]}, "where="),
        ("a", {"keys": "k"}, "keys is no array"),
        ("a", {"secret": "short"}, "secret is not"),
        ("a", {"dead_letter_topic": "t"}, "the topic itself"),
        ("a", {"dead_letter_topic": "__consumer_offsets"}, "are not for dead letters"),
        ("a", {"dead_letter_topic": "_schemas"}, "are not for dead letters"),
        ("a", {"dead_letter_topic": "_kalda_http_webhooks"}, "are not for dead letters"),
        ("a", {"unknown": 1}, "'unknown' is no field"),
    ],
)
def test_wrong_subscriptions_are_named(name: str, field: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSubscriptionError, match=message):
        read_subscription(name, {"topic": "t", "url": "https://example.com/", **field}, "User:a")


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b"\xff", b'{"version":2}', b'{"version":1,"principal":"p"}']
)
def test_other_records_of_the_topic_are_passed_over(value: bytes) -> None:
    assert decode_subscription("a", value) is None


def subscription(name: str, topic: str, dead_letter_topic: str) -> Subscription:
    given = {"topic": topic, "url": "https://example.com/", "dead_letter_topic": dead_letter_topic}
    return read_subscription(name, given, "User:a")


def test_dead_letters_that_come_back_by_other_webhooks_are_refused() -> None:
    others = [subscription("b", "bad", "worse"), subscription("c", "worse", "orders")]
    with pytest.raises(InvalidSubscriptionError, match="leads back to topic orders"):
        check_no_loop(subscription("a", "orders", "bad"), others)


def test_dead_letters_of_dead_letters_are_allowed() -> None:
    others = [
        subscription("a", "orders", "orders"[::-1]),
        subscription("b", "bad", "worse"),
        # A loop that does not have the new webhook in it.
        subscription("c", "worse", "worst"),
        subscription("d", "worst", "worse"),
    ]
    check_no_loop(subscription("a", "orders", "bad"), others)


def test_a_topic_of_dead_letters_that_was_chosen_is_told_from_the_usual_one() -> None:
    assert subscription("a", "orders", "bad").has_own_dead_letter_topic
    assert not subscription("a", "orders", "orders-webhook-dlq").has_own_dead_letter_topic
