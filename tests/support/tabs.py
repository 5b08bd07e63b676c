"""A page of `posbias explore` in a tab of a browser."""

from pathlib import Path

from posbias import load_architecture

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
