"""Checks of an answer that need no model to judge: a function of answer and value each, under its name."""

import re
import unicodedata
from contextlib import suppress
from json import loads

from posbias.core.errors import wrong
from posbias.core.matching import word_places


def contains(answer: str, value: str) -> bool:
    """Whether this stands in the answer, as whole words in any case; what begins or ends with a mark, anywhere."""
    text, sought = (unicodedata.normalize("NFKC", one).casefold() for one in (answer, value))
    whole_words = sought[0].isalnum() and sought[-1].isalnum()
    return any(True for _ in word_places(text, sought)) if whole_words else sought in text


def first_word(answer: str, value: str) -> bool:
    """Whether the answer begins with this word, in any case, whatever marks stand before it."""
    return re.match(rf"[\W_]*{re.escape(value)}(?!\w)", answer, re.IGNORECASE) is not None


def lines(answer: str, value: str) -> bool:
    """Whether the answer has this many lines; empty ones do not count."""
    return sum(bool(line.strip()) for line in answer.splitlines()) == float(value)


def script(answer: str, value: str) -> bool:
    """Whether there are letters, and all of these `SCRIPTS` ("Cyrillic", "CJK Hiragana Katakana")."""
    if not (names := {*value.upper().split()}) <= {*SCRIPTS.split()}:
        raise ValueError(value)
    letters = {unicodedata.name(sign, "").split(" ")[0] for sign in answer if sign.isalpha()}
    return bool(letters) and letters <= names


def json(answer: str, value: str = "") -> bool:
    """Whether the answer is JSON and nothing else; a fence of code around it does not count."""
    with suppress(ValueError, RecursionError):
        loads(re.sub(r"\A\s*```\w*\n(.*)```\s*\Z", r"\1", answer, flags=re.DOTALL))
        return True
    return False


def regex(answer: str, value: str) -> bool:
    """Whether this regular expression is found in the answer."""
    return re.search(value, answer) is not None


CHECKS = {check.__name__: check for check in (contains, first_word, lines, script, json, regex)}
"""Checks by the name that a file of rules has for them."""
EARLY = ("contains", "first_word")
"""Checks that nothing which follows undoes, once they are met."""
SCRIPTS = "LATIN CYRILLIC GREEK ARABIC HEBREW DEVANAGARI BENGALI TAMIL THAI HANGUL HIRAGANA KATAKANA CJK"
"""Scripts, as names of letters in Unicode begin."""
_EXPECTED = {"lines": "a number", "json": "none", "regex": "a regular expression", "script": SCRIPTS}


def check_value(check: str, value: str) -> None:
    """Raise `InvalidValueError` for a value that a check cannot have."""
    with suppress(ValueError, re.error):
        CHECKS[check]("An answer.", value or "none")
        if bool(value.strip()) == (check != "json"):
            return
    raise wrong("value", _EXPECTED.get(check, "a text"), value)
