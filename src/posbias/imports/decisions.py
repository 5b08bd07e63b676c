"""Decisions made elsewhere: which option was chosen, of those that stood in which order.

    (decisions,) = read_decisions(Path("verdicts.jsonl")).values()     # by who chose

FastChat's pairs, LLMBar's `result.json`, records of Position-Bias-Analyzer, rows of BiasBusters, samples of
lm-evaluation-harness whose options stand in several orders, and tables: a list of options as they were shown (also
tools, documents) or two columns of contents, and what was chosen (`decisions.toml` has the names of columns).
The same order again, in a row, a file or a run of its own, is kept: it says what a flip rate is by chance.
"""

import itertools
import logging
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt, TypeAdapter

from posbias.core.errors import InputFileError
from posbias.core.files import data_table, read_text
from posbias.core.tables import bare_name, is_table, number, parsed, read_table, unexpected
from posbias.imports.columns import ANY, PLACES, RATES, Choice, having
from posbias.profiles.decisions import KIND, REFUSED, TIE, Decisions, load_decisions

log = logging.getLogger(__name__)
NAMES: dict[str, Any] = data_table(__file__)
"""What columns are called, by what they hold."""
WORDS: dict[str, list[str]] = NAMES.pop("words")
"""Words for orders and for no choice."""
PAIRS: list[list[str]] = NAMES.pop("pair")
REUSED = {bare_name(name) for name in NAMES.pop("reused")}
SLOTS = ("first", "second", "third", "fourth")
"""Words for slots."""
PROBED = 12
"""Tables of a folder that are tried: if none of them holds decisions, it holds none."""
CONFUSED = 0.15
"""Share of calls whose place is not that of their API above which columns are others."""
_VERDICT = re.compile(r"\[\[([A-D])\]\]|(?:Choice: |选择：)([A-D])")
_LETTER = re.compile(r"\(?(?:[Oo]ption |[Oo]utput )?\(?([A-Za-z])\)?[.:]?")
_RUN = re.compile(r"-\d+$")
_Call = tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]
_CALLS = TypeAdapter(Annotated[list[_Call], Field(min_length=1, fail_fast=True)])
"""Rows of BiasBusters: number of the call, cluster, API in its cluster, place in the list, from 1."""
LM_EVAL, BIASBUSTERS = "lm-evaluation-harness samples", "BiasBusters selections"
Row = Mapping[str, Any]


class Shown(NamedTuple):
    """One decision of a file: who chose, on what, the options by slot, and the slot, `TIE` or `REFUSED`.

    `right`: the right option, empty where nobody knows. `sides`: by slot whose each is. `scores`: by slot the
    log-probability. `labelled`: whether the options had letters or numbers, always the same at the same slot.
    """

    judge: str
    item: str
    options: tuple[str, ...]
    chosen: int
    right: str = ""
    sides: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    labelled: bool = True


def read_decisions(path: Path, choice: Choice = ANY) -> dict[str, Decisions]:
    """By who chose, the decisions of a file or of the tables in a folder; none where it holds no decisions.

    `choice.columns` says which column is what: item, order, winner (what was chosen by its name), slot (by where
    it stood). Raises `InputFileError` for a winner that is no option, and where letters or numbers may name either
    an option or the slot where it stood.
    """
    rows: dict[tuple[str, int], list[Shown]] = {}
    read: dict[str, Decisions] = {}
    deltas: dict[str, list[list[float]]] = {}
    said = ""
    files = filter(is_table, [path] if path.is_file() else sorted(path.rglob("*")))
    for place, file in enumerate(files):
        if place >= PROBED and not rows and not read:
            break
        if file.suffix == ".json" and f'"{KIND}"' in read_text(file)[:2000]:
            ours = load_decisions(file)
            who = str(ours.asked.get("model", path.stem))
            read[f"{who}, {file.parent.name}" if who in read else who] = ours
            continue
        form, found = _read(file, choice)
        said = said or form * bool(found)
        if form == said == BIASBUSTERS:
            deltas.setdefault(found[0].judge, []).append(_deltas(file))
        if found and (form != said or read):
            log.warning("%s: left out %d decisions, of another form (%s)", file, len(found), form)
            continue
        for one in found:
            rows.setdefault((one.judge, len(one.options)), []).append(one)
    read_as = f"{said}: {sum(map(len, rows.values())):,} decisions"
    for (judge, slots), held in rows.items():
        means = map(float, np.mean(deltas[judge], axis=0)) if judge in deltas else ()
        job = {"read_as": read_as, "deltas": dict(zip(("API", "place", "model"), means, strict=False))}
        read[f"{judge}, {slots} options" if judge in read else judge] = _decisions(held, path, job)
    once = said == LM_EVAL and all(held.same_order.all() for held in read.values())
    return {} if once else read


def _decisions(rows: Sequence[Shown], path: Path, job: Mapping[str, Any]) -> Decisions:
    """Rows as a value: a question with the same options in any order is one item."""
    items: dict[tuple[str, frozenset[str]], tuple[int, Shown]] = {}
    for row in rows:
        if len({*row.options}) < max(2, len(row.options)):
            raise unexpected(f"{path}: {row.item}", "two options or more that differ", list(row.options))
        items.setdefault((row.item, frozenset(row.options)), (len(items), row))
    own = [items[row.item, frozenset(row.options)] for row in rows]
    order = [[*map(first.options.index, row.options)] for (_, first), row in zip(own, rows, strict=True)]
    held = [row for _, row in items.values()]
    about: dict[str, Any] = {"names": [row.item for row in held], "asked": {"model": rows[0].judge}}
    if any(row.right for row in held):
        about["right"] = [row.options.index(row.right) if row.right in row.options else -1 for row in held]
    if all(row.sides for row in held):
        about["sides"] = [row.sides for row in held]
    if all(row.scores for row in rows):
        about["scores"] = np.array([row.scores for row in rows])
    if all(row.labelled for row in rows):
        about["label_names"] = [*string.ascii_uppercase[: len(order[0])]]
    arrays = np.array([item for item, _ in own]), np.array(order), np.array([row.chosen for row in rows])
    return Decisions(*arrays, [row.options for row in held], job=job, **about)


def _read(file: Path, choice: Choice) -> tuple[str, list[Shown]]:
    """What a file was taken for, and its decisions; none where it holds none."""
    if file.suffix == ".json" and (calls := _calls_of(file)):
        return BIASBUSTERS, calls
    try:
        table = read_table(file)
    except InputFileError:
        return "", []
    columns = [str(column) for column in table.columns]
    rows = [
        (str(where), {str(key): cell for key, cell in row.items() if cell is not None and cell == cell})
        for where, row in zip(table.index, table.to_dict("records"), strict=True)
    ]
    for name, (needs, read) in FORMS.items():
        if {*needs} <= {*columns}:
            return name, [one for where, row in rows for one in read(row, where, file)]
    if having(table, PLACES) and having(table, RATES) and not choice.columns:
        return "", []  # rates by place
    return "table of decisions", _of_table(rows, columns, file, choice)


# --- files of one writer --------------------------------------------------------------------------------------


def _of_fastchat(row: Row, where: str, file: Path) -> Iterator[Shown]:
    """Two games, the second with the answers exchanged; winners are models, whatever stood first."""
    judge = parsed(row.get("judge", file.stem))
    who, question = str(judge[0] if isinstance(judge, list) else judge), str(row["question_id"])
    models = str(row["model_1"]), str(row["model_2"])
    winners = [row[name] for name in ("g1_winner", "g2_winner") if name in row]
    for turn, chosen in _in_both_orders(winners, ("model_1", "model_2"), where):
        sides = models[::turn]
        options = tuple(f"{question}: {side}" for side in sides)
        yield Shown(who, f"{question} turn {row.get('turn', 1)}", options, chosen, sides=sides)


def _of_llmbar(row: Row, where: str, file: Path) -> Iterator[Shown]:
    """Both orders of the last step; winners are outputs, whatever stood first.

    Outputs that were scored one by one have no order: equal scores are a tie, and none a refusal, for which the
    file names whichever stood second, or first.
    """
    who = " ".join(file.parts[-3:-1] if "evaluators" in file.parts else [file.stem])
    same, last = row["output_1"] == row["output_2"], parsed(row["results"])[-1]
    outputs = f"{row['input']}: {row['output_1']}", f"{row['input']}: {row['output_2']}{' (again)' * same}"
    scores = [number(last[name][0]) for name in ("score_1", "score_2") if name in last]
    neither = REFUSED if None in scores else TIE if len({*scores}) == 1 else None
    winners = [last[name]["winner"] for name in ("swap = False", "swap = True")]
    for turn, chosen in _in_both_orders(winners, ("1", "2"), where):
        right = outputs[int(row["label"]) - 1]
        yield Shown(who, str(row["input"]), outputs[::turn], chosen if neither is None else neither, right)


def _in_both_orders(winners: Sequence[Any], names: tuple[str, str], where: str) -> Iterator[tuple[int, int]]:
    """For each of two orders 1 or, exchanged, −1, and the slot where the winner, named by its content, stood."""
    for turn, won in zip((1, -1), winners, strict=False):
        yield turn, names[::turn].index(won) if won in names else _slot(won, 0, 0, where)


def _of_analyzer(row: Row, where: str, file: Path) -> Iterator[Shown]:
    """One order; A and B are whose the answers are that stood first and second, the last column the judgment."""
    judge, verdict = list(row.items())[-1]
    question, sides = str(row["cmp_index"]).split(";")[0], (str(row["A"]), str(row["B"]))
    if sides[0] != sides[1] and "extracted" not in row:  # one model, or a part of a record
        found = _VERDICT.search(str(verdict))
        chosen = {"A": 0, "B": 1, "C": TIE, "D": TIE}[found[1] or found[2]] if found else REFUSED
        yield Shown(judge, question, tuple(f"{question}: {side}" for side in sides), chosen, sides=sides)


def _of_lm_eval(row: Row, where: str, file: Path) -> Iterator[Shown]:
    """Options of the document in its order; scores where each option has its log-likelihood."""
    doc, answers = parsed(row["doc"]), parsed(row["filtered_resps"])
    held = doc.get("choices", doc.get("options")) if isinstance(doc, dict) else None
    held = held.get("text") if isinstance(held, dict) else held
    if not isinstance(held, list) or len(held) < 2:
        return
    item = str(doc.get("question", doc.get("query", row["doc_id"])))
    options = tuple(f"{item}: {one}" for one in held)
    said, scores = [one[0] for one in answers if isinstance(one, list) and len(one) == 2], ()
    if len(said) == len(held):
        known = [one for one in map(number, said) if one is not None]
        if len(known) < len(said):
            raise unexpected(f"{where}: filtered_resps", "finite log-likelihoods", said)
        scores, slot = tuple(known), known.index(max(known))
    else:
        slot = _number_of(_first(answers))
    chosen = REFUSED if slot is None or slot not in range(len(held)) else slot
    target = _number_of(_first(row["target"]))
    right = options[target] if target is not None and target in range(len(held)) else ""
    yield Shown(str(row.get("model", file.parent.name)), item, options, chosen, right, scores=scores)


def _calls_of(file: Path) -> list[Shown]:
    """Calls of BiasBusters; none where a file holds no such rows.

    A query is asked in every rotation of the list; a number that is not there made no call. Of APIs of one name
    rows confuse which it was: calls whose place is not the API's are left out, and counted in a warning. Raises
    `InputFileError` where they are more than `CONFUSED`.
    """
    try:
        rows: Any = _CALLS.validate_json(read_text(file), strict=True)
    except (ValueError, InputFileError):
        return []
    k = max(max(row[2:]) for row in rows)
    base = file.with_name(_RUN.sub("", file.stem) + file.suffix)
    judge = (base if base.is_file() else file).stem.removeprefix("api_selection_stats_")
    called, clusters = {row[0]: row for row in rows}, {(row[0] - 1) // k: row[1] for row in rows}
    found = []
    for query, rotation in itertools.product(clusters, range(k)):
        apis = [1 + (rotation + slot) % k for slot in range(k)]
        *_, api, place = called.get(query * k + rotation + 1, (None, None))
        if api is None or apis[place - 1] == api:
            options = tuple(f"cluster {clusters[query]}: API {one}" for one in apis)
            chosen = REFUSED if api is None else place - 1
            found.append(Shown(judge, f"query {query + 1}", options, chosen, labelled=False))
    if (confused := len(clusters) * k - len(found)) > CONFUSED * len(rows):
        what = "APIs at the places that rotations give them"
        raise unexpected(file, what, f"others in {confused:,} of {len(rows):,} rows")
    if confused:
        log.warning("%s: left out %d of %d calls: place and API disagree", file, confused, len(rows))
    return found


def _deltas(file: Path) -> list[float]:
    """Of rows of BiasBusters the total variation of APIs' and of places' shares from even ones, each from its own
    column, the mean over clusters; and the mean of both."""
    import pandas as pd

    calls = pd.DataFrame(_CALLS.validate_json(read_text(file)), columns=["call", "cluster", "API", "place"])
    even = 1 / calls[["API", "place"]].to_numpy().max()
    shares = (pd.crosstab(calls["cluster"], calls[name], normalize="index") for name in ("API", "place"))
    found = [float((one - even).clip(lower=0).sum(axis=1).mean()) for one in shares]
    return [*found, sum(found) / 2]


# --- tables ---------------------------------------------------------------------------------------------------


def _of_table(rows: Sequence[tuple[str, Row]], columns: list[str], file: Path, choice: Choice) -> list[Shown]:
    """Rows with a list of options as shown, or with two contents (and an order), and with what was chosen."""
    of = {role: _called(names, columns, choice.columns.get(role)) for role, names in NAMES.items()}
    pair = next(filter(all, ([_called([name], columns) for name in two] for two in PAIRS)), [])
    whose = not pair and all(_are_names(parsed(row.get(of["order"]))) for _, row in rows)
    if not all(isinstance(parsed(row.get(of["shown"])), list) for _, row in rows):
        of["shown"] = of["order"] if whose else ""
    by_name = not of["slot"] or choice.columns.keys() & {"winner", "slot"} == {"winner"}
    picked = of["winner"] if by_name else of["slot"]
    if not picked or not (of["shown"] or (of["item"] and (pair or of["order"]))):
        return []
    numbers = {number(_first(row.get(picked))) for _, row in rows} - {None}
    reused = bare_name(of["shown"]) in REUSED
    found = []
    for where, row in rows:
        shown, at = _shown(row, of, pair, where), f"{where}: {picked}"
        said = _first(row.get(picked))
        named = [slot for slot, names in enumerate(shown) if said in names]
        bare = [_number_of(text) is not None for text in (said, *(name for name, _ in shown))]
        if by_name and bare[0] and (of["order"] or any(bare[1:])) and "winner" not in choice.columns:
            how = f"say which: --columns winner={picked} (an option) or slot={picked} (where it stood)"
            raise InputFileError(f"{at}: expected the name of an option, got what may be a slot; {how}")
        if by_name and len(named) == 1:
            chosen = named[0]
        elif numbers and not numbers & {0, len(shown)}:
            raise unexpected(at, f"slots with 0 or {len(shown)} among them (what is the first?)", row[picked])
        else:
            chosen = _slot(row.get(picked), len(shown), int(0 not in numbers), at)
        item = str(row.get(of["item"], ""))
        options = [name if reused or not item else f"{item}: {name}" for name, _ in shown]
        right, letters = row.get(of["right"]), " " * 26 if any(bare[1:]) else string.ascii_uppercase
        known = [] if right is None else enumerate(shown)
        own = [options[slot] for slot, names in known if str(right) in (*names, letters[slot])]
        judge = str(row.get(of["judge"], file.stem))
        sides = () if of["shown"] and not (whose and len(shown) == 2) else tuple(name for name, _ in shown)
        found.append(Shown(judge, item, tuple(options), chosen, "".join(own), sides, labelled=not reused))
    return found


def _are_names(order: Any) -> bool:
    """Whether an order is a list of whose the answers are, and no permutation in numbers."""
    return isinstance(order, list) and all(isinstance(one, str) and number(one) is None for one in order)


def _shown(row: Row, of: Mapping[str, str], pair: Sequence[str], where: str) -> list[tuple[str, str]]:
    """By slot the option and another name of it, that of its column."""
    if of["shown"]:
        return [(name, name) for name in map(_name, parsed(row[of["shown"]]))]
    named = [(str(row[name]), name) for name in pair] or [("A", "A"), ("B", "B")]
    text = str(row.get(of["order"], "")).strip().lower()
    if not of["order"] or text in WORDS["kept"]:
        return named
    if text in WORDS["swapped"]:
        return named[::-1]
    letters = re.findall(r"[A-Z]|\d+", text.upper())
    if pair or len({*letters}) < max(len(letters), 2):
        raise unexpected(f"{where}: {of['order']}", "an order (AB, BA, original, swapped)", text)
    return [(letter, letter) for letter in letters]


def _called(names: Sequence[str], columns: Sequence[str], named: str | None = None) -> str:
    """The first column of these names, or the one named; "" where there is none.

    Raises `InputFileError` where the one named is not there.
    """
    if named is not None and named not in columns:
        raise unexpected("columns", f"one of {', '.join(columns)}", named)
    by = {bare_name(column): column for column in columns}
    return named or next((by[bare_name(name)] for name in names if bare_name(name) in by), "")


def _first(cell: Any) -> str:
    """The name of what a cell has: of a list (a ranking, calls) of its first."""
    cell = parsed(cell)
    return _name((cell or [None])[0] if isinstance(cell, list) else cell)


def _name(one: Any) -> str:
    """The name of an option: of an object, a tool's or a call's perhaps, its name, number or text."""
    keys = "function", "name", "id", "text", "content", "title"
    while isinstance(one, dict):
        one = next((one[key] for key in keys if key in one), None)
    return "" if one is None else str(one).strip()


def _number_of(text: str, start: int = 0) -> int | None:
    """The slot that a letter, a number or a word for one names; None for other text."""
    if found := _LETTER.fullmatch(text):
        return ord(found[1].upper()) - ord("A")
    if text.lower() in SLOTS:
        return SLOTS.index(text.lower())
    return int(value) - start if (value := number(text)) is not None and value == int(value) else None


def _slot(cell: Any, slots: int, start: int, where: str) -> int:
    """The slot that a cell names, `TIE` or `REFUSED`. Raises `InputFileError` for none of them."""
    text, slot = _first(cell), _number_of(_first(cell), start)
    if slot is not None and slot in range(slots):
        return slot
    if text.lower() in WORDS["tie"] or (slots == 2 and text == "C"):  # the third letter of judges
        return TIE
    if text.lower() in WORDS["none"]:
        return REFUSED
    raise unexpected(where, "one of the options, a slot, a tie or none", text)


FORMS = {
    "FastChat pairs": (("question_id", "model_1", "model_2", "g1_winner"), _of_fastchat),
    "LLMBar results": (("input", "output_1", "output_2", "label", "results"), _of_llmbar),
    "Position-Bias-Analyzer record": (("cmp_index", "A", "B", "evaluating_guidance"), _of_analyzer),
    LM_EVAL: (("doc_id", "doc", "target", "filtered_resps"), _of_lm_eval),
}
"""Files of one writer: the columns that they have, and how a row becomes decisions."""
