"""A page of Markdown shows names, titles and texts as they are, whatever stands in them."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from three_papers import judged

from posbias.reports.pages import Page, Table

HOSTILE = [
    "<script>alert(1)</script>",
    "a | b",
    "a \\| b",
    "<img src=x onerror=alert(2)>",
    "line\nbreak\r\n# title",
    "\x1b[31mred",
    "</td><td>",
    "\\\\<script>",
    "a \\\\| b",
    "<!-- comment",
    "a & b < c",
    "![x](http://example.org/x.png)",
    "[x](javascript:alert(3))",
]

PLAIN = {"h1", "p", "table", "thead", "tbody", "tr", "th", "td"}


class Read(HTMLParser):
    """Elements by their number, and the text of each cell of a table."""

    def __init__(self):
        super().__init__()
        self.tags, self.cells = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells and self.tags[-1] in ("td", "th"):
            self.cells[-1] += data


def read(page):
    """As a viewer that lets HTML through."""
    reader = Read()
    reader.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(page.markdown()))
    reader.cells = [cell.strip() for cell in reader.cells]
    return reader


def test_hostile_words_are_words():
    rows = [[text, "1"] for text in HOSTILE]
    claim = judged("wu2025/fig2/1", sentence=HOSTILE[0], why=HOSTILE[3])
    reader = read(Page(HOSTILE[0], HOSTILE[3], (Table(HOSTILE[7], ["what", "how many"], rows),), (claim,)))
    assert not {"script", "img", "a"} & {*reader.tags}
    assert len(reader.cells) == 2 * (len(rows) + 1)
    assert reader.cells[2] == HOSTILE[0]
    assert reader.cells[4] == "a | b"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_cell_stays_one_cell_and_brings_no_element(text):
    reader = read(Page("Title", "", (Table("Caption", ["a", "b"], [[text, "1"]]),)))
    assert len(reader.cells) == 4
    assert reader.cells[3] == "1"
    # what Markdown itself has; of HTML nothing
    assert {*reader.tags} <= {*PLAIN, "em", "strong", "code"}
