"""Record what every command line, public name, claim and specification does, or say how that differs now.

python tests/golden/record.py                   record all again, over what is there
python tests/golden/record.py --only predict    the same for ids that begin so
python tests/golden/record.py --against         a Markdown table: id, where, recorded, now
python tests/golden/record.py --against --fast  without the slow commands
python tests/golden/record.py --claims FOLDER   the same table for the claims of a quick run in FOLDER
"""

import argparse
import ast
import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.compare import Compared, Difference, moved, outcome_differences, read_listed
from golden.names import ROOT, decode, name_differences, public_names, specifications
from golden.replay import HERE, Outcome, Replay, read_commands, run, temporary_replay

_CLAIM = re.compile(
    r'<li id="([^"]*)" class="claim (holds|fails|undecided)">\s*(?:<details(?: open)?><summary>|<p class="again">)'
    r"<b>.*?</b> <span>(.*?)</span> <i>(.*?)</i>"
)


def main() -> None:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", action="store_true", help="compare instead of recording")
    parser.add_argument("--fast", action="store_true", help="without the slow commands")
    parser.add_argument("--only", default="", help="ids that begin so")
    parser.add_argument(
        "--claims", type=Path, help="results of a quick run to compare with the published claims"
    )
    asked = parser.parse_args()
    if asked.claims:
        show(claim_differences(asked.claims))
    elif asked.against:
        show(differences(asked.only, asked.fast))
    else:
        record(asked.only, asked.fast)


def record(only: str, fast: bool) -> None:
    """Write recorded/, figures/ and the lists of names, claims, tests and specifications."""
    commands = read_commands()
    with temporary_replay(commands) as replay:
        for name, command in commands.items():
            if name.startswith(only) and not (fast and command.slow):
                print(name, file=sys.stderr, flush=True)
                replay.outcome(name).save(name)
        if not only:
            write("claims.json", unmade_claims(replay))
    if not only:
        write("public_names.json", public_names())
        write("claims_quick.json", published_claims((ROOT / "docs" / "papers.html").read_text()))
        write("tests.json", collected_tests())
        write("specifications.json", specifications())


def write(name: str, data: Any) -> None:
    """JSON, an entry a line."""
    if isinstance(data, dict):
        lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in data.items()]
    else:
        lines = [json.dumps(value, ensure_ascii=False) for value in data]
    opening, closing = "{}" if isinstance(data, dict) else "[]"
    (HERE / name).write_text(f"{opening}\n" + ",\n".join(lines) + f"\n{closing}\n")


def read(name: str) -> Any:
    """JSON that was written."""
    return json.loads((HERE / name).read_text())


def differences(only: str = "", fast: bool = False) -> Iterator[Difference]:
    """All differences between what is recorded and what is now."""
    commands = read_commands()
    with temporary_replay(commands) as replay:
        for name, command in commands.items():
            if name.startswith(only) and not (fast and command.slow):
                yield from outcome_differences(command, Outcome.load(name), replay.outcome(name))
    if not only:
        yield from name_differences(read("public_names.json"), moved(read_listed()))
        yield from specification_differences(read("specifications.json"))


def show(found: Any) -> None:
    """Print differences as a Markdown table."""
    print("| id | where | recorded | now |\n|---|---|---|---|")
    for difference in found:
        print(difference.row(), flush=True)


def specification_differences(recorded: list[dict[str, Any]]) -> list[Difference]:
    """Specifications that are read otherwise than they were."""
    found = Compared("specifications")
    for number, before in enumerate(recorded):
        now = decode(before["suffix"], before["text"]) or {}
        for key in ("kind", "decoded", "refused"):
            found.data(f"{number}/{key}", before.get(key), now.get(key))
    return found.differences


# ── claims ──


def unmade_claims(replay: Replay) -> dict[str, str]:
    """Every claim that `posbias paper claims` lists where nothing is made: id and sentence."""
    answer = replay.outcome("paper-claims-unmade").stdout
    return {claim["id"]: claim["claim"] for claim in answer["claims"]}


def published_claims(page: str) -> list[dict[str, str]]:
    """The claims of the published page in their order: id, sentence, number (± se) as printed, verdict."""
    claims = []
    for name, verdict, sentence, number in _CLAIM.findall(page):
        value, _, se = plain_text(number).removeprefix("margin ").partition(" ± ")
        claims.append(
            {
                "id": name,
                "claim": plain_text(sentence),
                "number": "" if value == "–" else value,
                "se": se,
                "verdict": verdict,
            }
        )
    return claims


def plain_text(markup: str) -> str:
    """HTML as text: tags left out, entities resolved."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup)).strip()


def claim_differences(folder: Path) -> list[Difference]:
    """Where the claims of results in a folder differ from those published: id, sentence, number, se, verdict."""
    outcome = run(["paper", "claims", "--out", str(folder.resolve()), "--json"], folder)
    now = {claim["id"]: claim for claim in outcome.stdout["claims"]}
    published = {claim["id"]: claim for claim in read("claims_quick.json")}
    found = []
    for name in [*published, *(name for name in now if name not in published)]:
        if name not in now or name not in published:
            sides = ("published", "–") if name in published else ("–", "there")
            found.append(Difference("claims", name, *sides))
            continue
        compared = Compared(f"claims/{name}")
        for key in ("verdict", "number", "se"):
            before, after = published[name][key], now[name][key]
            compared.text(key, before, _printed(after, before))
        found += compared.differences
    return found


def _printed(number: Any, like: str) -> str:
    """A number with the digits that another was printed with."""
    if not isinstance(number, int | float) or not like:
        return "" if number is None else str(number)
    plain = like.replace(",", "").replace("−", "-")
    mantissa, mark, _ = plain.partition("e")
    digits = len(mantissa.partition(".")[2])
    return f"{number:.{digits}{'e' if mark else 'f'}}".replace("-", "−")


# ── tests ──


def collected_tests() -> dict[str, str]:
    """Every test function that pytest collects, with the first line of its docstring."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests", "--ignore", str(HERE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = dict.fromkeys(line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line)
    return {name: _first_line(name) for name in named}


def _first_line(name: str) -> str:
    path, _, function = name.partition("::")
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == function.rpartition("::")[2]:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


if __name__ == "__main__":
    main()
