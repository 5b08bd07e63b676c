"""Small wrong changes of the code, drawn by a seed, each run against the tests of its module.

    python tools/mutants.py --seed 13 --count 60 > mutants.md

A mutant is one comparison, one constant, one sign or one connective of a module of `PLACES`, changed. It is
killed when the tests that import the module fail, and survives when they pass: then a test is missing, or the
change makes no difference. Every mutant is made in a copy of the sources, with a
compiler's cache of its own where the module is compiled. What is printed is a Markdown table with the seed.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("claims.py", "evidence.py", "comparison.py", "estimate.py", "study", "simulation", "theory")
SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
"""What a comparison, a sign or a connective becomes."""


def sites(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module that can be changed: of code, not of annotations and docstrings."""
    for node in ast.walk(tree):
        for name, child in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                for inner in ast.walk(child) if isinstance(child, ast.AST) else ():
                    inner.kept = True  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if hasattr(node, "kept"):
            continue
        match node:
            case ast.Compare(ops=[operator]) if type(operator) in SWAPPED:
                yield node
            case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in SWAPPED:
                yield node
            case ast.UnaryOp(op=ast.USub() | ast.Not()):
                yield node
            case ast.Constant(value=bool() | int() | float()):
                yield node


def change(node: ast.AST) -> str:
    """Change a node of `sites` in place; what was done, in words."""
    before = ast.unparse(node)
    match node:
        case ast.Compare():
            node.ops = [SWAPPED[type(node.ops[0])]()]
        case ast.BinOp() | ast.BoolOp():
            node.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
        case ast.UnaryOp(op=ast.USub()):
            node.op = ast.UAdd()
        case ast.UnaryOp():
            return f"`{before}` → `{_without_not(node)}`"
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant():
            node.value = node.value + 1 if isinstance(node.value, int) else node.value * 2 + 0.1  # type: ignore[operator]
    return f"`{_short(before)}` → `{_short(ast.unparse(node))}`"


def _without_not(node: ast.UnaryOp) -> str:
    """`not x` becomes `bool(x)`: the node stays, what it does is undone."""
    node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)
    return ast.unparse(node)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return (text if len(text) <= 60 else text[:57] + "…").replace("|", "\\|")


def tests_of(path: Path) -> list[str]:
    """The test files that import a module, or name what it defines outside its package; else all."""
    dotted = (
        path.relative_to(ROOT / "src").with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    )
    package, _, name = dotted.rpartition(".")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    defined = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    public = "|".join(one for one in defined if not one.startswith("_")) or name
    module = re.compile(rf"\b{re.escape(dotted)}\b|from {re.escape(package)} import [^\n]*\b{name}\b")
    texts = {test: test.read_text(encoding="utf-8") for test in (ROOT / "tests").rglob("test_*.py")}
    found = [
        str(test.relative_to(ROOT))
        for test, text in texts.items()
        if module.search(text) or (re.search(rf"\b{package}\b", text) and re.search(rf"\b({public})\b", text))
    ]
    # those named after the module are the likeliest to fail, and the first
    return sorted(found, key=lambda test: (name not in test, test)) or ["tests"]


def run(path: Path, number: int, copy: Path, patience: float) -> tuple[str, str, float]:
    """What was changed, what became of it, and the seconds that took; the copy is as before afterwards."""
    place, text = copy / path.relative_to(ROOT), path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    node = list(sites(tree))[number]
    label = f"{path.relative_to(ROOT / 'src' / 'posbias')}:{getattr(node, 'lineno', 0)} {change(node)}"
    place.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    environment = os.environ | {
        "PYTHONPATH": str(copy / "src"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    if "compiled(" in text:
        environment["NUMBA_CACHE_DIR"] = str(copy / f"cache-{number}")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += [
        "-m",
        "not slow and not real_model and not waits",
        "--hypothesis-profile=quick",
        *tests_of(path),
    ]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, timeout=patience, check=False
        )
        became = {0: "**survived**", 1: "killed", 2: "killed (cannot be imported)"}.get(
            done.returncode, "killed"
        )
    except subprocess.TimeoutExpired:
        became = "killed (does not end)"
    place.write_text(text, encoding="utf-8")
    return label, became, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument(
        "--patience", type=float, default=240.0, help="seconds until a mutant counts as endless"
    )
    parser.add_argument("--only", default="", help="part of a path")
    given = parser.parse_args()
    source = ROOT / "src" / "posbias"
    files = [path for place in PLACES for path in sorted([source / place, *(source / place).rglob("*.py")])]
    files = [path for path in files if path.suffix == ".py" and given.only in str(path)]
    every = [(path, number) for path in files for number, _ in enumerate(sites(ast.parse(path.read_text())))]
    drawn = random.Random(given.seed).sample(every, min(given.count, len(every)))
    print(f"{len(drawn)} mutants of {len(every)} places, seed {given.seed}\n")
    print("| mutant | became | s |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="posbias-mutants-") as folder:
        copy = Path(folder)
        for name in ("src", "tests", "tools", "docs", "benchmarks"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "Makefile"):
            shutil.copy(ROOT / name, copy / name)
        for path, number in drawn:
            label, became, seconds = run(path, number, copy, given.patience)
            print(f"| {label} | {became} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
