"""Pages in Chromium (playwright; without it the tests that need it are skipped), and as tags and words."""

import shutil
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

from posbias import load_architecture

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests, without a network."""
    if CHROMIUM is None or find_spec("playwright") is None:
        pytest.skip("Chromium or playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


PATIENCE = 240_000  # milliseconds that a loaded machine has for a step


GO = """hash => new Promise(done => {
  if (location.hash === hash) { done(); return; }
  addEventListener("hashchange", () => done(), { once: true });
  location.hash = hash;
})"""


class Opened:
    """A page in a tab of its own, with what it asked for and complained of."""

    def __init__(self, browser, file: Path, **context):
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | context)
        self.context.set_default_timeout(PATIENCE)
        self.tab = self.context.new_page()
        self.wrong: list[str] = []
        self.tab.on("console", lambda message: self.wrong.append(message.text))
        self.tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.url = file.absolute().as_uri()
        self.tab.on("request", lambda asked: self._asked(asked.url))
        self.go()

    def _asked(self, url: str) -> None:
        if url.partition("#")[0] not in (self.url.partition("#")[0], "about:blank"):
            self.wrong.append(url)

    def go(self, link: str = "") -> None:
        """Load the page anew."""
        self.tab.goto("about:blank")
        self.url = self.url.partition("#")[0] + link
        self.tab.goto(self.url)
        self.settle()

    def turn(self, link: str) -> None:
        """Follow a link within the page."""
        self.tab.evaluate(GO, link)
        self.settle()

    def settle(self) -> None:
        self.tab.wait_for_selector("html[data-settled=yes]", state="attached")

    def ask(self, what: str):
        return self.tab.evaluate(f"page.{what}")

    def architecture(self, folder: Path):
        """What the file says that the page offers."""
        path = folder / "explored.toml"
        path.write_text(self.tab.text_content("#file pre"))
        return load_architecture(path)


LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "poster"}


EMPTY = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Collects tags, their attributes, ids, text, and whether every tag is closed in turn."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.ids, self.words, self.open = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read(path):
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    return reader


def alone(path, leads=lambda value: value.startswith(("#", "data:"))):
    """A page as tags and words that has no script and loads or links to nothing but what `leads` says."""
    reader = read(path)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert not {"script", "link", "iframe", "object", "embed"} & set(reader.tags)
    for tag, name, value in reader.attributes:
        assert name not in LOADING or leads(value), (tag, name, value[:60])
        assert not name.startswith("on")
    return reader


def plain(reader):
    return " ".join("".join(reader.words).replace("\N{NO-BREAK SPACE}", " ").split())
