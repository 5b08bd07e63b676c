"""Which compiled code fits a checkout: a hash that names the folder of numba's cache, and the files that compile.

    python .ci/compiled.py         the hash of the pins, of these files and of the checkout's path
    python .ci/compiled.py files   the files that compile, and all that they import of it

Machine code holds what it was compiled from: functions and constants of other files too, whose change numba does
not see. Where the hash is equal, so is all of that.
"""

import ast
import hashlib
import sys
from pathlib import Path

PINS = ("pyproject.toml", "papers/pyproject.toml", "constraints.txt")


def modules(source: Path) -> dict[str, Path]:
    """The modules of a distribution by name."""
    names = {path: path.relative_to(source).with_suffix("").parts for path in source.rglob("*.py")}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): path for path, parts in names.items()}


def imported(path: Path) -> set[str]:
    """Every name that a file may import, as a module or from one."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def compiling(root: Path) -> list[Path]:
    """The files that compile and what they import, directly or not, sorted."""
    known = modules(root / "src") | modules(root / "papers" / "src")
    named = {name: imported(path) for name, path in known.items()}
    uses = {name: used & known.keys() for name, used in named.items()}
    found, left = set(), [name for name, used in named.items() if "posbias.core.machine.compiled" in used]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += uses[name]
    return sorted(known[name] for name in found)


def key(root: Path) -> str:
    """Sixteen digits that change with the pins, with any of these files and with where they lie."""
    digest = hashlib.sha256(f"{root.resolve()} {sys.version}".encode())
    for path in (*(root / name for name in PINS), *compiling(root)):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[1]
    print(*compiling(here), sep="\n") if sys.argv[1:] == ["files"] else print(key(here))
