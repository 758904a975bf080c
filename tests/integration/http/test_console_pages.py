"""The console over HTTP: pages, changes that ask first, and what other sites must not be able to do."""

import html
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

from kalda import Admin, NewTopic, Producer, TopicPartition
from kalda.clients.admin.partitions import OffsetSpec
from kalda.pipelines.dlq.letters import Letter
from kalda.pipelines.dlq.replay import create_topics
from kalda.schemas.payloads.framing import framed
from tests.http_server import HttpCluster, HttpProcess, http_process

XSS = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"


def hidden_fields(page: str) -> dict[str, str]:
    """Return the fields of a question's form, which its confirmation sends, but for the token."""
    form = page[page.index("<form", page.index("<main")) :]
    pairs = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
    return {name: html.unescape(value) for name, value in pairs if name != "token"}


@dataclass(frozen=True)
class Browser:
    """A visitor with cookies."""

    client: httpx.Client

    def get(self, path: str, status: int = 200) -> str:
        response = self.client.get(f"/console{path}")
        assert status == response.status_code, response.text
        return response.text

    def token(self, path: str = "/topics/create") -> str:
        found = re.search(r'name="token" value="([0-9a-f]+)"', self.get(path))
        assert found is not None
        return found[1]

    def post(self, path: str, **fields: str) -> httpx.Response:
        return self.client.post(f"/console{path}", data={"token": self.token(), **fields})

    def confirm(self, path: str, *, word: str | None = None, **fields: str) -> httpx.Response:
        """Send a form and confirm what its question shows."""
        question = self.post(path, **fields)
        assert 200 == question.status_code, question.text
        again = hidden_fields(question.text)
        assert "confirmed" in again, question.text
        return self.post(path, **again, **({} if word is None else {"word": word}))


@pytest.fixture(scope="module")
def writable(http_cluster: HttpCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    """A server that lets everyone change things."""
    directory = tmp_path_factory.mktemp("writable")
    with http_process(http_cluster.cluster, directory, {"http.console.writable": "true"}) as http:
        yield http


@pytest.fixture
def browser(writable: HttpProcess) -> Iterator[Browser]:
    with httpx.Client(base_url=writable.url, timeout=30) as client:
        yield Browser(client)


@pytest.fixture
def admin(http_cluster: HttpCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=http_cluster.bootstrap) as made:
        yield made


def test_pages_show_the_cluster_and_its_topics(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic("console-list", partitions=3)])

    assert "Brokers" in browser.get("/")
    page = browser.get("/topics?q=console-list")
    assert "/console/topics/console-list/records" in page
    assert "kalda topics list" in page
    assert "min.insync.replicas" in browser.get("/topics/console-list/settings")
    assert "kalda topics describe console-list" in browser.get("/topics/console-list")


def test_records_are_shown_with_key_value_and_headers(
    browser: Browser, admin: Admin, http_cluster: HttpCluster
) -> None:
    admin.create_topics([NewTopic("console-records", partitions=2)])
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        for number in range(60):
            producer.send(
                "console-records",
                json.dumps({"n": number}).encode(),
                key=b"k",
                headers=[("trace", b"t-1")],
                partition=0,
            )

    page = browser.get("/topics/console-records/records")
    assert "{&#34;n&#34;: 59}" in page
    assert "{&#34;n&#34;: 9}" not in page
    assert "trace: t-1" in page
    assert 10 == browser.get("/topics/console-records/records?at=0:10,1:0").count("<summary>{")
    assert "{&#34;n&#34;: 7}" in browser.get(
        "/topics/console-records/records?start=offset&offset=7&partition=0"
    )
    assert "t-1" in browser.get("/topics/console-records/records/0/7")
    browser.get("/topics/console-records/records/0/60", 404)
    browser.get("/topics/console-records/records/9/0", 404)


def test_a_change_asks_first_and_shows_its_command(browser: Browser, admin: Admin) -> None:
    fields = {"name": "console-made", "partitions": "2", "settings": "retention.ms=1000"}

    question = browser.post("/topics/create", **fields)
    assert "kalda topics create console-made --partitions 2" in question.text
    assert "console-made" not in admin.list_topics()

    done = browser.confirm("/topics/create", **fields)
    assert (303, "/console/topics/console-made") == (done.status_code, done.headers["location"])
    assert "console-made" in admin.list_topics()
    assert "Topic console-made was created." in browser.get("/topics/console-made")
    assert "was created" not in browser.get("/topics/console-made")


def test_changes_are_in_the_audit_log(browser: Browser, writable: HttpProcess) -> None:
    browser.confirm("/topics/create", name="console-audited")
    browser.confirm("/topics/console-audited/delete", word="console-audited")

    assert '"request":"CreateTopics","resource":"Topic:console-audited"' in writable.log()
    assert '"request":"DeleteTopics","resource":"Topic:console-audited"' in writable.log()


def test_what_is_confirmed_is_what_was_shown(browser: Browser, admin: Admin) -> None:
    question = browser.post("/topics/create", name="console-shown")
    found = re.search(r'name="confirmed" value="([^"]+)"', question.text)
    assert found is not None

    refused = browser.post("/topics/create", name="console-other", confirmed=found[1])

    assert 403 == refused.status_code
    assert "console-other" not in admin.list_topics()


def test_a_deletion_needs_the_name(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic("console-gone", partitions=1)])

    assert 422 == browser.confirm("/topics/console-gone/delete", word="console").status_code
    assert "console-gone" in admin.list_topics()
    assert 303 == browser.confirm("/topics/console-gone/delete", word="console-gone").status_code
    assert "console-gone" not in admin.list_topics()


@pytest.mark.parametrize("change", ["delete", "purge"])
def test_a_topic_that_was_created_again_is_not_the_one_that_was_shown(
    change: str, browser: Browser, admin: Admin, http_cluster: HttpCluster
) -> None:
    """Someone else deletes the topic and creates it again while the page with the question is open."""
    topic = f"console-again-{change}"
    path = f"/topics/{topic}/{change}"
    admin.create_topics([NewTopic(topic, partitions=1)])
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        producer.send(topic, b"before")
    question = browser.post(path).text
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, partitions=1)])
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        producer.send(topic, b"after")

    answer = browser.post(path, **{**hidden_fields(question), "word": topic})

    assert (422, True) == (answer.status_code, "created again" in answer.text)
    assert topic in admin.list_topics()


def test_a_button_that_is_pressed_twice_changes_something_once(
    browser: Browser, admin: Admin, http_cluster: HttpCluster
) -> None:
    admin.create_topics([NewTopic("console-twice", partitions=1)])
    path = "/topics/console-twice/produce"
    fields = {"key_is": "text", "value": "once", "value_is": "text"}
    question = hidden_fields(browser.post(path, **fields).text)

    assert [303, 409] == [browser.post(path, **question).status_code for _ in range(2)]
    partition = TopicPartition("console-twice", 0)
    assert 1 == admin.list_offsets({partition: OffsetSpec.latest()})[partition].offset


def test_records_are_purged_up_to_what_was_shown(
    browser: Browser, admin: Admin, http_cluster: HttpCluster
) -> None:
    admin.create_topics([NewTopic("console-purge", partitions=1)])
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        for number in range(10):
            producer.send("console-purge", b"%d" % number)

    assert 303 == browser.confirm("/topics/console-purge/purge", before="4", word="console-purge").status_code
    page = browser.get("/topics/console-purge/records?start=oldest")
    assert page.index("/records/0/4") > 0
    assert "/records/0/3" not in page


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a b"}, "is not allowed"),
        ({"name": "console-bad", "partitions": "0"}, "it takes 1 to 10000"),
        ({"name": "console-bad", "partitions": "x"}, "is no number"),
        ({"name": "console-bad", "settings": "nonsense"}, "is not name=value"),
        ({"name": "console-bad", "settings": "retention.ms=soon"}, "retention.ms"),
        ({"name": "console-bad", "replicas": "3"}, "eplication"),
    ],
)
def test_what_is_not_possible_is_said_in_the_form(
    browser: Browser, fields: dict[str, str], message: str
) -> None:
    """The form keeps what was entered."""
    answer = browser.post("/topics/create", **fields)

    assert 422 == answer.status_code
    assert message in html.unescape(answer.text)
    assert f'value="{fields["name"]}"' in answer.text


def test_without_logins_nothing_is_changed_unless_a_setting_allows_it(
    http_cluster: HttpCluster, admin: Admin
) -> None:
    with httpx.Client(base_url=http_cluster.url, timeout=30) as client:
        browser = Browser(client)
        assert "http.console.writable=true" in browser.get("/topics/create")
        assert 403 == browser.post("/topics/create", name="console-read-only").status_code
    assert "console-read-only" not in admin.list_topics()


# What other sites and clients must not be able to.


def test_nothing_that_a_record_holds_becomes_a_part_of_the_page(
    browser: Browser, admin: Admin, http_cluster: HttpCluster
) -> None:
    admin.create_topics([NewTopic("console-xss", partitions=1)])
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        producer.send("console-xss", XSS.encode(), key=XSS.encode(), headers=[(XSS, XSS.encode())])
        producer.send("console-xss", json.dumps({XSS: XSS}).encode())

    for path in (
        "records",
        "records/0/0",
        "records/0/1",
        f"records?key={quote(XSS)}&time={quote(XSS)}&start=time",
    ):
        response = browser.client.get(f"/console/topics/console-xss/{path}")
        assert "<script>alert" not in response.text
        assert "<img src=x" not in response.text


def test_nothing_that_an_address_holds_becomes_a_part_of_the_page(browser: Browser) -> None:
    for path in (
        f"/topics?q={quote(XSS)}",
        f"/topics/{quote(XSS, safe='')}",
        f"/topics/create?name={quote(XSS)}&settings={quote(XSS)}",
        f"/{quote(XSS)}",
        f"/login?back={quote(XSS)}",
        f"/topics?sort={quote(XSS)}&page={quote(XSS)}",
    ):
        text = browser.client.get(f"/console{path}").text
        assert "<script>alert" not in text
        assert "<img src=x" not in text


def test_a_form_of_another_site_changes_nothing(browser: Browser, admin: Admin) -> None:
    token = browser.token()
    url, fields = "/console/topics/create", {"name": "console-forged"}

    def status(data: dict[str, str], **headers: str) -> int:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return browser.client.post(url, data=data, headers=named).status_code

    assert 403 == status(fields)
    assert 403 == status({**fields, "token": "0" * 64})
    assert 403 == status({**fields, "token": token}, origin="https://evil.example")
    assert 403 == status({**fields, "token": token}, sec_fetch_site="cross-site")
    assert 415 == browser.client.post(url, json={**fields, "token": token}).status_code
    assert 403 == status({**fields, "token": token}, origin="null")
    assert 200 == status({**fields, "token": token}, origin="null", sec_fetch_site="same-origin")
    with httpx.Client(base_url=browser.client.base_url) as other:
        other.get("/console/topics/create")
        assert 403 == other.post(url, data={**fields, "token": token}).status_code
    assert "console-forged" not in admin.list_topics()


def test_pages_and_cookies_forbid_what_attacks_need(browser: Browser) -> None:
    response = browser.client.get("/console/topics")
    policy = response.headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "DENY" == response.headers["x-frame-options"]
    assert "no-store" == response.headers["cache-control"]
    cookie = response.headers["set-cookie"]
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/console"):
        assert attribute in cookie
    assert "<script>" not in response.text
    assert " style=" not in response.text
    assert "onclick" not in response.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/x/../../visits.py",
        "/static/x/..%2f..%2fvisits.py",
        "/static/x/%2e%2e%2fvisits.py",
        "/static/x/visits.py",
        "/static/x/",
        "/topics/..%2f..%2fetc%2fpasswd",
    ],
)
def test_no_address_leads_out_of_the_served_files(browser: Browser, path: str) -> None:
    assert 404 == browser.client.get(f"/console{path}").status_code


def test_the_way_back_does_not_lead_to_another_site(browser: Browser) -> None:
    for back in ("https://evil.example/", "//evil.example", "/console//evil.example", "/\\evil.example"):
        answer = browser.post("/theme", theme="dark", back=back)
        assert "/console/" == answer.headers["location"]


def test_a_name_of_another_site_that_resolves_to_this_machine_is_refused(browser: Browser) -> None:
    """DNS rebinding: the page of another site would be of the same origin as the console."""
    assert 421 == browser.client.get("/console/topics", headers={"host": "evil.example:8080"}).status_code


def test_colours_are_kept(browser: Browser) -> None:
    answer = browser.post("/theme", theme="dark", back="/console/topics?q=a")

    assert "/console/topics?q=a" == answer.headers["location"]
    assert 'data-theme="dark"' in browser.get("/topics")


def test_the_files_of_pages_are_kept_by_browsers(browser: Browser) -> None:
    address = re.search(r'href="(/console/static/[^"]+console\.css)"', browser.get("/"))
    assert address is not None
    response = browser.client.get(address[1])

    assert "text/css; charset=utf-8" == response.headers["content-type"]
    assert "immutable" in response.headers["cache-control"]


# Logins.


def test_a_login_is_checked_by_the_brokers_and_acts_as_the_user(secured_http_cluster: HttpCluster) -> None:
    user, password = secured_http_cluster.auth("admin")
    with httpx.Client(base_url=secured_http_cluster.url, timeout=30) as client:
        browser = Browser(client)
        answer = client.get("/console/topics?q=a")
        assert (303, "/console/login?back=%2Fconsole%2Ftopics%3Fq%3Da") == (
            answer.status_code,
            answer.headers["location"],
        )
        token = browser.token("/login")
        wrong = client.post("/console/login", data={"token": token, "user": user, "password": "wrong"})
        assert 401 == wrong.status_code
        assert "refuse this user or password" in wrong.text
        right = client.post(
            "/console/login",
            data={"token": token, "user": user, "password": password, "back": "/console/topics?q=a"},
        )
        assert (303, "/console/topics?q=a") == (right.status_code, right.headers["location"])
        page = browser.get("/topics")
        assert password not in page
        assert password not in str(client.cookies)
        assert 303 == browser.confirm("/topics/create", name="console-secured").status_code
        assert 303 == browser.post("/logout").status_code
        assert 303 == client.get("/console/topics").status_code


def test_what_acls_forbid_the_console_does_not_do(secured_http_cluster: HttpCluster) -> None:
    user, password = secured_http_cluster.auth("bob")
    with httpx.Client(base_url=secured_http_cluster.url, timeout=30) as client:
        browser = Browser(client)
        token = browser.token("/login")
        client.post("/console/login", data={"token": token, "user": user, "password": password})
        refused = browser.post("/topics/create", name="console-of-bob")

        assert refused.status_code in (403, 422)
        assert "Not authorised" in html.unescape(refused.text)
        assert "console-secured" not in browser.get("/topics")


# Searches.


@pytest.fixture(scope="module")
def searched(http_cluster: HttpCluster) -> str:
    """A topic with a thousand records in four partitions."""
    with Admin(bootstrap_servers=http_cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("console-search", partitions=4)])
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        for number in range(1_000):
            value = json.dumps({"n": number, "customer": {"id": number % 100}}).encode()
            value = b"no json" if number == 13 else b"\x00\xff" if number == 14 else value
            producer.send(
                "console-search",
                value,
                key=b"key-%d" % (number % 10),
                headers=[("source", b"shop" if number % 2 else b"web")],
                partition=number % 4,
                timestamp_ms=1_700_000_000_000 + number,
            )
    return "/topics/console-search/records"


@pytest.mark.parametrize(
    ("parameters", "count"),
    [
        ({"key": "key-3"}, 100),
        ({"value": '"n": 77,'}, 1),
        ({"header": "source=shop"}, 200),
        ({"header": "missing"}, 0),
        ({"field": "$.customer.id", "equals": "42"}, 10),
        ({"where": "TRY_CAST(CASE WHEN json_valid(value) THEN value->>'$.n' END AS INT) < 5"}, 5),
        ({"where": "value = 'no json'"}, 1),
        ({"until": "1700000000010"}, 10),
        ({"start": "time", "time": "1700000000990", "key": "key-"}, 10),
        ({"key": "key-3", "partition": "1"}, 50),
    ],
)
def test_searches_find_what_matches(
    browser: Browser, searched: str, parameters: dict[str, str], count: int
) -> None:
    page = browser.get(f"{searched}?limit=200&{httpx.QueryParams(parameters)}")

    assert count == page.count('<th scope="row" class="number"'), page
    assert "looked through" in page
    assert "kalda sql" in page


def test_a_search_goes_on_where_it_ended(browser: Browser, searched: str) -> None:
    found: list[str] = []
    path = f"{searched}?limit=25&key=key-3"
    for _ in range(10):
        page = browser.get(path)
        found += re.findall(r'title="(Partition \d, offset \d+)"', page)
        link = re.search(r'rel="next" href="/console([^"]+)"', page)
        if link is None:
            break
        path = html.unescape(link[1])

    assert 100 == len(found) == len(set(found))


@pytest.mark.parametrize(
    "where",
    [
        "1=1); DROP VIEW records; --",
        "(SELECT count(*) FROM read_text('/etc/passwd')) > 0",
        "(SELECT count(*) FROM read_csv('http://127.0.0.1:1/x')) > 0",
        "(SELECT count(*) FROM other_topic) > 0",
        "nonsense +",
        "key = ",
        "true; SET enable_external_access = true",
        "true; COPY (SELECT 1) TO '/tmp/console-copied'",
        "error('x')",
    ],
)
def test_a_condition_reaches_nothing_but_the_records(browser: Browser, searched: str, where: str) -> None:
    """Also what it is refused with stays text."""
    page = browser.get(f"{searched}?where={quote(where)}", 422)

    assert 'role="alert"' in page
    assert "root:" not in page


@pytest.mark.parametrize("path", ["produce?from=%s:0", "live/events?partition=%s"])
def test_a_partition_of_thousands_of_digits_is_refused(browser: Browser, searched: str, path: str) -> None:
    topic = searched.removesuffix("/records")
    assert "is no" in browser.get(f"{topic}/{path % ('9' * 5_000)}", 422)


def test_a_group_is_reset_to_what_was_shown(
    browser: Browser, admin: Admin, http_cluster: HttpCluster
) -> None:
    """Records that come between the question and the answer change nothing."""
    admin.create_topics([NewTopic("console-reset", partitions=1)])
    where = TopicPartition("console-reset", 0)
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        for number in range(10):
            producer.send("console-reset", b"%d" % number)
        producer.flush()
        admin.alter_consumer_group_offsets({"console-readers": {where: 2}})
        question = browser.post("/groups/console-readers/reset", to="latest")
        assert (
            "kalda groups reset-offsets console-readers --all-topics --to-latest --execute" in question.text
        )
        producer.send("console-reset", b"late").result(30)
    fields = hidden_fields(question.text)
    assert 303 == browser.post("/groups/console-readers/reset", **fields).status_code
    found = admin.list_consumer_group_offsets(["console-readers"])["console-readers"].results

    assert [10] == [each.offset for each in found.values() if each is not None]
    assert "console-readers" in browser.get("/groups?q=console-readers")


def test_a_group_has_a_history(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic("console-lost", partitions=1)])
    where = TopicPartition("console-lost", 0)
    admin.alter_consumer_group_offsets({"console/lost": {where: 0}})
    admin.delete_consumer_group_offsets({"console/lost": [where]})

    page = browser.get("/groups/console%2Flost/history")

    assert "The committed offsets of group console/lost in 1 partition of topic console-lost" in page
    assert "kalda why group console/lost" in page
    assert "No events are kept" in browser.get("/groups/console-nobody/history")


def test_a_users_password_is_in_no_page(secured_http_cluster: HttpCluster) -> None:
    user, password = secured_http_cluster.auth("admin")
    secret = "n0t-shown-anywhere"
    with httpx.Client(base_url=secured_http_cluster.url, timeout=30) as client:
        browser = Browser(client)
        token = browser.token("/login")
        client.post("/console/login", data={"token": token, "user": user, "password": password})
        fields = {"user": "console-user", "mechanism": "SCRAM-SHA-512"}
        question = browser.post("/users/set", **fields, password=secret)
        assert secret not in question.text
        found = re.search(r'name="confirmed" value="([^"]+)"', question.text)
        assert found is not None
        refused = browser.post("/users/set", **fields, confirmed=found[1])
        found = re.search(r'name="confirmed" value="([^"]+)"', refused.text)
        assert found is not None
        assert 422 == refused.status_code
        done = browser.post("/users/set", **fields, confirmed=found[1], password=secret)
        assert 303 == done.status_code
        assert "console-user" in browser.get("/users")
        acl = {
            "principal": "User:console-user",
            "permission": "ALLOW",
            "operation": "READ",
            "type": "TOPIC",
            "name": "x",
        }
        assert 303 == browser.confirm("/acls/add", **acl).status_code
        assert "User:console-user" in browser.get("/acls")
        assert 303 == browser.confirm("/acls/remove", **acl, pattern="LITERAL", host="*").status_code
        assert (
            303
            == browser.confirm(
                "/quotas/set", user="console-user", quota="producer_byte_rate", value="1000"
            ).status_code
        )
        assert "producer_byte_rate" in browser.get("/quotas")


def test_a_group_may_have_any_name(browser: Browser, admin: Admin) -> None:
    """A slash, a question mark and markup in it stay one name."""
    admin.create_topics([NewTopic("console-names", partitions=1)])
    name = f"console/a?b#c {XSS}"
    admin.alter_consumer_group_offsets({name: {TopicPartition("console-names", 0): 0}})
    path = f"/groups/{quote(name, safe='')}"

    deadline = time.monotonic() + 60
    while path not in browser.get("/groups?q=console%2Fa"):  # what was read a moment ago is shown again
        assert time.monotonic() < deadline
    page = browser.get(path)
    assert "<script>alert" not in page
    assert 303 == browser.confirm(f"{path}/delete", word=name).status_code
    assert name not in [each.group_id for each in admin.list_groups().results]


@pytest.mark.skipif(
    find_spec("kalda.http.registry") is None, reason="the registry is not a part of this build"
)
def test_versions_of_a_schema_are_compared(browser: Browser) -> None:
    def registered(fields: str) -> None:
        schema = f'{{"type":"record","name":"Console","fields":[{fields}]}}'
        answer = browser.client.post("/subjects/console%2Fsubject/versions", json={"schema": schema})
        assert 200 == answer.status_code, answer.text

    registered('{"name":"a","type":"int"}')
    registered('{"name":"a","type":"int"},{"name":"b","type":"string","default":"<i>"}')

    assert "console/subject" in browser.get("/schemas?q=console")
    page = browser.get("/schemas/console%2Fsubject")
    assert "Changes from version 1 to 2" in page
    assert "BACKWARD" in page
    assert "<i>" not in page
    assert "Changes from" not in browser.get("/schemas/console%2Fsubject?version=1")
    browser.get("/schemas/nothing", 404)


def test_avro_and_protobuf_are_shown_and_searched_as_json(
    browser: Browser, admin: Admin, http_cluster: HttpCluster
) -> None:
    """By the schemas of the registry that the same process serves; what does not fit stays bytes."""
    topic = f"framed-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
    schemas = {
        "AVRO": '{"type":"record","name":"O","fields":[{"name":"city","type":"string"}]}',
        "PROTOBUF": 'syntax = "proto3"; message O { string city = 1; }',
    }
    ids = {
        kind: browser.client.post(
            f"/subjects/{topic}-{kind}/versions", json={"schema": text, "schemaType": kind}
        ).json()["id"]
        for kind, text in schemas.items()
    }
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        producer.send(topic, framed(ids["AVRO"], b"\x08Oslo"), b"a")
        producer.send(topic, framed(ids["PROTOBUF"], b"\n\x04Bonn", [0]), b"p")
        producer.send(topic, framed(ids["AVRO"], b"\x08"), b"cut")

    page = html.unescape(browser.get(f"/topics/{topic}/records"))
    one = html.unescape(browser.get(f"/topics/{topic}/records/0/1"))
    found = html.unescape(browser.get(f"/topics/{topic}/records?field=$.city&equals=Oslo"))

    assert '{"city":"Oslo"}' in page
    assert '{"city":"Bonn"}' in page
    assert "decoded by it" in one
    assert "Oslo" in found
    assert "Bonn" not in found
    assert "3 records looked through" in found


def test_a_cluster_without_a_history_says_so(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic("console-unrecorded", partitions=1, replication_factor=1)])

    assert "There is no topic __cluster_history" in browser.get("/topics/console-unrecorded/history")


def test_dead_letters_of_a_topic_that_the_pipeline_has_chosen_are_retried(
    browser: Browser, http_cluster: HttpCluster
) -> None:
    name = f"pipe_{uuid4().hex[:8]}"
    topic = f"bad-{name}"
    create_topics({"bootstrap.servers": http_cluster.bootstrap}, topic)
    letter = Letter(
        pipeline=name,
        topic="orders",
        partition=0,
        offset=7,
        stage="decode",
        error_class="JsonError",
        error_message="no JSON",
        schema_id=None,
        batch=1,
        time_ms=1,
        retries=0,
    )
    with (
        Admin(bootstrap_servers=http_cluster.bootstrap) as admin,
        Producer(bootstrap_servers=http_cluster.bootstrap) as producer,
    ):
        producer.send(topic, b"oops", headers=letter.headers()).result(30)
        # What the pipeline's group commits: it reads the letters that are replayed.
        read = {TopicPartition(f"{topic}.retry", 0): 0}
        admin.alter_consumer_group_offsets({f"kalda-pipeline-{name}": read})

        assert "JsonError" in browser.get(f"/pipelines/{name}/letters")
        assert browser.confirm(f"/pipelines/{name}/retry", cause="").status_code < 400
        ends = admin.list_offsets({TopicPartition(f"{topic}.retry", 0): OffsetSpec.latest()})
    # The record, and the marker of the transaction in which the letter was moved.
    assert [2] == [each.offset for each in ends.values()]
    assert "JsonError" not in browser.get(f"/pipelines/{name}/letters")
