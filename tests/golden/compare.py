"""What differs between what was recorded and what is now, and which of it is listed with a reason."""

import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from golden.replay import HERE, Command, Outcome

IGNORED = {
    *("seconds", "peak_memory", "memory", "memory_bytes", "versions", "version", "created", "written"),
    *("machine", "host", "elapsed", "duration", "fingerprint", "digest", "cpu_seconds"),
    *("member_iterations_per_second", "iterations_per_second", "schema"),
}
"""Keys of JSON whose values are costs, versions or names of a machine; `schema`, which 0.1 had not."""
_NUMBER = re.compile(r"(?<![\w.])[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+−]?\d+)?")
_WIDTH = 200


@dataclass(frozen=True)
class Difference:
    """One place of one record: what was there, and what is now."""

    id: str
    where: str
    recorded: str
    now: str

    def row(self) -> str:
        """A row of a Markdown table."""
        cells = (" ".join(part.split()).replace("|", "\\|") for part in (self.recorded, self.now))
        return f"| {self.id} | {self.where} | {' | '.join(cells)} |"


@dataclass(frozen=True)
class Listed:
    """A difference that is meant: the ids and places it is at (patterns), what it is and why."""

    ids: tuple[str, ...]
    where: str
    what: str
    reason: str
    moved_to: str = ""
    """Of a package: its new name, under which its public names are looked for."""

    def covers(self, difference: Difference) -> bool:
        """Whether a difference is this one."""
        return difference.id in self.ids and fnmatchcase(difference.where, self.where)


def read_listed() -> list[Listed]:
    """The entries of differences.toml; README.md says their keys."""
    entries = tomllib.loads((HERE / "differences.toml").read_text()).get("difference", [])
    return [
        Listed(
            (entry["id"],) if isinstance(entry["id"], str) else tuple(entry["id"]),
            entry.get("where", "*"),
            entry["what"],
            entry["reason"],
            entry.get("moved_to", ""),
        )
        for entry in entries
    ]


def moved(listed: list[Listed]) -> dict[str, str]:
    """Packages that have another name now."""
    return {entry.where: entry.moved_to for entry in listed if entry.moved_to}


def faults(ids: Iterable[str], differences: Iterable[Difference], listed: list[Listed]) -> list[str]:
    """Differences of some records that are not listed, and entries about them that nothing differs by."""
    differences = list(differences)
    found = [
        f"{one.id} {one.where}\n  recorded: {one.recorded}\n  now:      {one.now}"
        for one in differences
        if not any(entry.covers(one) for entry in listed)
    ]
    for record in ids:
        own = [one for one in differences if one.id == record]
        found += [
            f"{record} {entry.where}: listed as different ({entry.what}), but it is as recorded"
            for entry in listed
            if record in entry.ids and not any(entry.covers(one) for one in own)
        ]
    return found


def outcome_differences(command: Command, recorded: Outcome, now: Outcome) -> list[Difference]:
    """Where two outcomes of a command differ: exit, stderr, stdout, files, figures."""
    compared = Compared(command.id, command.rtol, command.atol, IGNORED | {*command.ignore})
    verbatim = "--help" in command.line
    if recorded.exit != now.exit:
        compared.tell("exit", recorded.exit, now.exit)
    compared.text("stderr", "\n".join(recorded.stderr), "\n".join(now.stderr))
    if verbatim and recorded.stdout != now.stdout:
        compared.tell("stdout", recorded.stdout, now.stdout)
    elif not verbatim:
        compared.data("stdout", recorded.stdout, now.stdout)
    for name in sorted({*recorded.files} ^ {*now.files}):
        compared.tell(f"files/{name}", *(("written", "–") if name in recorded.files else ("–", "written")))
    for name in sorted({*recorded.figures} | {*now.figures}):
        compared.array(f"figures/{name}", recorded.figures.get(name), now.figures.get(name))
    return compared.differences


class Compared:
    """Collects the differences between two values of JSON, two texts or two arrays."""

    def __init__(self, id: str, rtol: float = 1e-9, atol: float = 0.0, ignored: Iterable[str] = IGNORED):
        self.id, self.rtol, self.atol, self.ignored = id, rtol, atol, {*ignored}
        self.differences: list[Difference] = []

    def tell(self, where: str, recorded: Any, now: Any) -> None:
        """Add a difference."""
        self.differences.append(Difference(self.id, where, _short(recorded), _short(now)))

    def data(self, where: str, recorded: Any, now: Any) -> None:
        """Compare two values of JSON."""
        if isinstance(recorded, dict) and isinstance(now, dict):
            for key in [*recorded, *(key for key in now if key not in recorded)]:
                if key not in self.ignored:
                    self._inner(f"{where}/{key}", recorded, now, key)
        elif _numeric(recorded) and _numeric(now):
            self.array(where, np.array(recorded, float), np.array(now, float))
        elif (key := _named_by(recorded)) and key == _named_by(now):
            self.data(where, *({one[key]: one for one in held} for held in (recorded, now)))
        elif isinstance(recorded, list) and isinstance(now, list):
            for index in range(max(len(recorded), len(now))):
                self._inner(f"{where}/{index}", dict(enumerate(recorded)), dict(enumerate(now)), index)
        elif isinstance(recorded, str) and isinstance(now, str):
            self.text(where, recorded, now)
        elif isinstance(recorded, int | float) and isinstance(now, int | float):
            if isinstance(recorded, bool) != isinstance(now, bool) or not self._near(recorded, now):
                self.tell(where, recorded, now)
        elif recorded != now:
            self.tell(where, recorded, now)

    def _inner(self, where: str, recorded: dict, now: dict, key: Any) -> None:
        if key in recorded and key in now:
            self.data(where, recorded[key], now[key])
        else:
            self.tell(where, recorded.get(key, "–"), now.get(key, "–"))

    def _near(self, recorded: float, now: float) -> bool:
        return math.isclose(recorded, now, rel_tol=self.rtol, abs_tol=self.atol)

    def text(self, where: str, recorded: str, now: str) -> None:
        """Compare two texts: words exactly, spaces roughly, numbers to one unit of their last digit."""
        if [*_words(recorded)] != [*_words(now)]:
            self.tell(where, recorded, now)
            return
        pairs = zip(_NUMBER.findall(recorded), _NUMBER.findall(now), strict=True)
        for before, after in pairs:
            if before != after and not self._printed_alike(before, after):
                self.tell(where, recorded, now)
                return

    def _printed_alike(self, before: str, after: str) -> bool:
        (first, unit), (second, other) = _value(before), _value(after)
        exact = unit == 1 and other == 1
        return self._near(first, second) or (not exact and abs(first - second) <= 1.01 * max(unit, other))

    def array(self, where: str, recorded: Any, now: Any) -> None:
        """Compare two arrays; told is the entry that is furthest off."""
        if recorded is None or now is None:
            self.tell(where, *("–" if one is None else f"array {one.shape}" for one in (recorded, now)))
            return
        if recorded.shape != now.shape:
            self.tell(where, f"array {recorded.shape}", f"array {now.shape}")
            return
        alike = np.isclose(now, recorded, rtol=self.rtol, atol=self.atol, equal_nan=True)
        if not alike.all():
            with np.errstate(all="ignore"):
                off = np.where(alike, 0, np.nan_to_num(abs(now - recorded) / abs(recorded), nan=np.inf))
            worst = np.unravel_index(off.argmax(), off.shape)
            count = f"{(~alike).sum()} of {alike.size} entries, worst at {[int(i) for i in worst]}: "
            self.tell(where, f"{count}{recorded[worst]!r}", repr(now[worst]))


def _named_by(data: Any) -> str:
    """The key that tells the records of a list apart, "key" or "id"; "" where there is none."""
    if not isinstance(data, list) or not data or not all(isinstance(one, dict) for one in data):
        return ""
    names = ("key", "id")
    return next((n for n in names if len({str(one.get(n, "")) for one in data} - {""}) == len(data)), "")


def _numeric(data: Any) -> bool:
    """Whether it is a list (of lists) of numbers, more than a handful."""
    if not isinstance(data, list) or not data:
        return False
    try:
        array = np.array(data)
    except ValueError:
        return False
    return array.dtype.kind in "if"


def _words(text: str) -> Iterator[str]:
    """The words of a text with a sign for every number; lines of a table may be ruled longer or shorter."""
    for word in _NUMBER.sub("#", text).split():
        yield re.sub(r"([─═-])\1+", r"\1", word)


def _value(word: str) -> tuple[float, float]:
    """A printed number and one unit of its last digit."""
    plain = word.replace(",", "").replace("−", "-")
    mantissa, _, exponent = plain.partition("e")
    digits = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - digits)
    return float(plain), unit


def _short(data: Any) -> str:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]} …"
