"""The ten commonest tasks in a real browser, by mouse and by keyboard, on a wide screen and on a phone's."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import WebDriverWait

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.pipelines.dlq.letters import Letter
from kalda.pipelines.dlq.replay import create_topics
from tests.http_server import HttpCluster, HttpProcess, http_process

T = TypeVar("T")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="needs Debian's chromium and chromium-driver"
    ),
    pytest.mark.timeout(240),
]

PASSING = (
    NoSuchElementException,
    StaleElementReferenceException,
    ElementNotInteractableException,
    ElementClickInterceptedException,
)
FIELDS = "main input:not([type=hidden]), main select, main textarea"
WIDTHS = (390, 820, 1440)
XSS = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


class Page:
    """A page of the console in a browser."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, path: str) -> None:
        self.driver.get(f"{self.url}/console{path}")

    def open_with_link(self, path: str, text: str) -> None:
        """Open a page until it has a link: brokers learn of new topics one after the other."""

        def has_link(driver: webdriver.Chrome) -> bool:
            self.open(path)
            return bool(driver.find_elements(By.LINK_TEXT, text))

        self.wait(has_link)

    def wait(self, found: Callable[[webdriver.Chrome], T]) -> T:
        return WebDriverWait(self.driver, 60, ignored_exceptions=PASSING).until(found)

    def link(self, text: str) -> None:
        """Follow a link by its text."""
        self.press(By.LINK_TEXT, text)

    def button(self, text: str) -> None:
        """Press a button that leads to another page."""
        self.press(By.XPATH, f"//main//button[normalize-space()='{text}']")

    def press(self, by: str, what: str) -> None:
        """Click, and return when the next page is there: the fields of this one may have the same names."""
        before = self.driver.find_element(By.TAG_NAME, "html")
        self.do(by, what, WebElement.click)
        self.wait(staleness_of(before))

    def fill(self, name: str, text: str) -> None:
        def enter(field: WebElement) -> None:
            if field.tag_name == "select":
                field.find_element(By.XPATH, f".//option[@value='{text}']").click()
                return
            field.clear()
            field.send_keys(text)

        self.do(By.CSS_SELECTOR, f"main [name='{name}']:not([type=hidden])", enter)

    def do(self, by: str, what: str, act: Callable[[WebElement], None]) -> None:
        """Act on an element when it can be acted on; scripts may replace it meanwhile."""

        def try_it(driver: webdriver.Chrome) -> bool:
            act(driver.find_element(by, what))
            return True

        self.wait(try_it)

    def element(self, by: str, what: str) -> WebElement:
        return self.wait(lambda driver: driver.find_element(by, what))

    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "main").text

    def shows(self, text: str) -> None:
        self.wait(lambda _: text in self.text())

    def console_lines(self) -> list[str]:
        """Return what the browser wrote to its console since the last call."""
        driver: Any = self.driver  # selenium has no types for the log
        return [str(each["message"]) for each in driver.get_log("browser")]

    def themed(self, theme: str) -> bool:
        return theme == self.driver.find_element(By.TAG_NAME, "html").get_attribute("data-theme")

    def resize(self, width: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )


@pytest.fixture(scope="module")
def server(http_cluster: HttpCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    directory = tmp_path_factory.mktemp("chromium")
    with http_process(http_cluster.cluster, directory, {"http.console.writable": "true"}) as http:
        yield http


@pytest.fixture
def page(server: HttpProcess, tmp_path: Path) -> Iterator[Page]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        page = Page(driver, server.url)
        page.resize(1440)
        yield page
        # A violation of the policy, or an exception of a script, is written there.
        assert [] == page.console_lines()
    finally:
        driver.quit()


@pytest.fixture
def admin(http_cluster: HttpCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=http_cluster.bootstrap) as made:
        yield made


@pytest.fixture
def send(http_cluster: HttpCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        yield producer


def test_1_a_topic_is_found_while_its_name_is_typed(page: Page, admin: Admin) -> None:
    """The address follows, so that the table can be sent to a colleague."""
    admin.create_topics([NewTopic(f"chrome-find-{number}", partitions=1) for number in range(3)])
    page.open("/topics")
    page.driver.find_element(By.TAG_NAME, "body").send_keys("/")
    page.driver.switch_to.active_element.send_keys("chrome-find-2")
    page.wait(lambda driver: "q=chrome-find-2" in driver.current_url)

    assert ["chrome-find-2"] == [
        each.text for each in page.driver.find_elements(By.CSS_SELECTOR, "#topics tbody th a")
    ]


def test_2_a_topic_is_created_by_keyboard_alone(page: Page, admin: Admin) -> None:
    page.open("/topics/create")
    page.element(By.NAME, "name").send_keys("chrome-made", Keys.TAB, "3", Keys.ENTER)
    page.shows("kalda topics create chrome-made --partitions 3")
    page.element(By.CSS_SELECTOR, "button.primary").send_keys(Keys.ENTER)
    page.shows("Topic chrome-made was created.")

    assert 3 == len(admin.describe_topics(["chrome-made"])["chrome-made"].partitions)


def test_3_records_are_browsed_and_one_is_opened(page: Page, admin: Admin, send: Producer) -> None:
    admin.create_topics([NewTopic("chrome-browse", partitions=1)])
    for number in range(80):
        send.send("chrome-browse", json.dumps({"n": number}).encode(), key=b"k-%d" % number)
    send.flush()
    page.open("/topics")
    page.open("/topics/chrome-browse/records")
    page.shows('{"n": 79}')
    page.link("Older →")
    page.shows('{"n": 29}')
    page.link("7")
    page.shows('"n": 7')
    page.link("Edit and resend")
    page.fill("value", '{"n": 700}')
    page.button("Continue")
    page.button("Produce")
    page.shows('{"n": 700}')


def test_4_records_are_searched_by_an_sql_condition(page: Page, admin: Admin, send: Producer) -> None:
    admin.create_topics([NewTopic("chrome-search", partitions=2)])
    for number in range(500):
        send.send("chrome-search", json.dumps({"n": number, "name": f"x{number % 7}"}).encode())
    send.flush()
    page.open("/topics/chrome-search/records")
    page.element(By.XPATH, "//summary[text()='Search']").click()
    page.fill("where", "CAST(value->>'$.n' AS INT) BETWEEN 100 AND 102")
    page.button("Show")
    page.shows("records looked through")

    assert 3 == len(page.driver.find_elements(By.CSS_SELECTOR, "#records tbody tr"))
    assert "kalda sql" in page.text()


def test_5_new_records_show_by_themselves(page: Page, admin: Admin, send: Producer) -> None:
    """What a record holds stays text, here too."""
    admin.create_topics([NewTopic("chrome-live", partitions=1)])
    page.open("/topics/chrome-live/live")
    page.shows("Live: waiting for records")
    deadline = time.monotonic() + 60
    while "hello" not in page.text():  # the tail begins at the end, which it looks up after it says so
        assert time.monotonic() < deadline
        send.send("chrome-live", f"hello {XSS}".encode()).result(30)
    page.shows("<script>document.title")

    assert "owned" not in page.driver.title
    page.element(By.CSS_SELECTOR, "[data-pause]").click()
    page.shows("Paused after")


def test_6_a_setting_of_a_topic_is_changed(page: Page, admin: Admin) -> None:
    admin.create_topics([NewTopic("chrome-setting", partitions=1)])
    page.open("/topics/chrome-setting/settings")
    page.press(By.CSS_SELECTOR, "td a[href$='settings/change?name=retention.ms']")
    page.fill("value", "3600000")
    page.button("Continue")
    page.shows("kalda configs alter --topic chrome-setting --add-config retention.ms=3600000")
    page.button("Change")
    page.shows("retention.ms of topic chrome-setting was changed.")

    assert "3600000" in page.driver.find_element(By.CSS_SELECTOR, "tr.own").text


def test_7_a_group_is_reset_after_a_look_at_what_it_does(
    page: Page, admin: Admin, send: Producer, http_cluster: HttpCluster
) -> None:
    admin.create_topics([NewTopic("chrome-reset", partitions=1)])
    for number in range(20):
        send.send("chrome-reset", b"%d" % number)
    send.flush()
    with Consumer(
        "chrome-reset",
        bootstrap_servers=http_cluster.bootstrap,
        group_id="chrome-readers",
        auto_offset_reset="earliest",
    ) as consumer:
        read = 0
        while read < 20:
            read += len(consumer.poll(1.0))
        consumer.commit()
    page.open("/groups/chrome-readers")
    page.link("Reset offsets")
    page.fill("to", "shift")
    page.fill("value", "-5")
    page.button("Continue")
    page.shows("-5")
    page.button("Reset")
    page.shows("Reset 1 offset of group chrome-readers.")
    offsets = admin.list_consumer_group_offsets(["chrome-readers"])["chrome-readers"].results

    assert [15] == [each.offset for each in offsets.values() if each is not None]


def test_8_dead_letters_are_retried_in_four_clicks(
    page: Page, admin: Admin, send: Producer, http_cluster: HttpCluster
) -> None:
    """Pipelines, the count, Retry, Continue, and the confirmation are what there is to click."""
    create_topics({"bootstrap.servers": http_cluster.bootstrap}, "chrome_pipe.dlq")
    for number in range(3):
        letter = Letter(
            pipeline="chrome_pipe",
            topic="orders",
            partition=0,
            offset=number,
            stage="decode",
            error_class="JsonError",
            error_message=XSS,
            schema_id=None,
            batch=1,
            time_ms=1,
            retries=0,
        )
        send.send("chrome_pipe.dlq", b"oops", key=b"k", headers=letter.headers())
    send.flush()
    page.open_with_link("/pipelines?q=chrome_pipe", "3")
    page.link("3")
    page.shows("JsonError")
    assert "owned" not in page.driver.title
    page.link("Retry")
    page.button("Continue")
    page.button("Retry")
    page.shows("Sent 3 dead letters again; left: 0.")


def test_9_records_are_purged_and_the_topic_deleted(page: Page, admin: Admin, send: Producer) -> None:
    admin.create_topics([NewTopic("chrome-purge", partitions=1)])
    for number in range(10):
        send.send("chrome-purge", b"%d" % number)
    send.flush()
    page.open("/topics/chrome-purge/records")
    page.do(By.XPATH, "//summary[normalize-space()='More']", WebElement.click)
    page.link("Purge records")
    page.button("Continue")
    page.fill("word", "chrome-purge")
    page.button("Purge")
    page.shows("records of chrome-purge.")
    page.open("/topics/chrome-purge/delete")
    page.button("Continue")
    page.fill("word", "wrong")
    page.button("Delete topic")
    page.shows("nothing was changed")
    page.fill("word", "chrome-purge")
    page.button("Delete topic")
    page.shows("Topic chrome-purge was deleted.")
    page.console_lines()  # the status of the refused confirmation is written there


def test_10_colours_are_chosen_and_kept(page: Page) -> None:
    page.open("/topics")
    for theme in ("light", "dark"):
        page.press(By.CSS_SELECTOR, ".theme button")
        assert page.themed(theme)
    page.open("/groups")
    background = page.driver.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")

    assert "rgba(16, 20, 19, 1)" == background


PATHS = (
    "/",
    "/topics",
    "/topics/create",
    "/topics/chrome-wide-a-name-that-is-long-and-has-no-place-to-break-at-all/records",
    "/topics/chrome-wide-a-name-that-is-long-and-has-no-place-to-break-at-all/records/0/0",
    "/topics/chrome-wide-a-name-that-is-long-and-has-no-place-to-break-at-all",
    "/topics/chrome-wide-a-name-that-is-long-and-has-no-place-to-break-at-all/settings",
    "/groups",
    "/pipelines",
    "/brokers",
    "/brokers/0?all=1",
    "/acls",
    "/users",
    "/quotas",
    "/transactions",
    "/reassignments",
    "/clients",
    "/login",
)


def test_no_page_scrolls_sideways_and_each_has_one_heading_and_labels(
    page: Page, admin: Admin, send: Producer
) -> None:
    """In three widths and both sets of colours; each field has a name that a screen reader says."""
    name = "chrome-wide-a-name-that-is-long-and-has-no-place-to-break-at-all"
    admin.create_topics([NewTopic(name, partitions=1)])
    send.send(name, b"x" * 3_000, key=b"y" * 500, headers=[("z" * 200, b"w" * 300)]).result(30)
    for theme in ("light", "dark"):
        page.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        )
        for width in WIDTHS:
            page.resize(width)
            for path in PATHS:
                page.open(path)
                found = page.driver.execute_script(
                    "return [document.documentElement.scrollWidth <= document.documentElement.clientWidth,"
                    " document.querySelectorAll('h1').length,"
                    f" [...document.querySelectorAll('{FIELDS}')].filter(e => !e.labels.length).length,"
                    " document.querySelector('.skip').getAttribute('href')]"
                )
                assert [True, 1, 0, "#content"] == found, f"{path} at {width} in {theme}"


def test_without_scripts_the_console_works(server: HttpProcess, admin: Admin, tmp_path: Path) -> None:
    """Links and forms are all that tasks need; scripts make them quicker."""
    admin.create_topics([NewTopic("chrome-plain", partitions=1)])
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        page = Page(driver, server.url)
        page.open("/topics")
        page.fill("q", "chrome-plain")
        page.button("Search")
        page.link("chrome-plain")
        page.link("Produce")
        page.fill("value", "by hand")
        page.button("Continue")
        page.button("Produce")
        page.shows("by hand")
    finally:
        driver.quit()
