"""What a page of HTML holds: tags, ids, links, words."""

from html.parser import HTMLParser

LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "poster"}


EMPTY = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Collects tags, their attributes, ids, text, and whether every tag is closed in turn."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.ids, self.words, self.open = [], [], [], [], []
        self.all = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.all.append((tag, attrs))
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


def plain(reader):
    return " ".join("".join(reader.words).replace("\N{NO-BREAK SPACE}", " ").split())
