"""How much each installation of posbias brings: packages and megabytes of the base, of every extra and of all.

    python tools/footprint.py

Counted over what is installed in the environment that runs this, so that it has to have all of it.
"""

import importlib.metadata as metadata
import re
from pathlib import Path

from packaging.requirements import Requirement


def named(text: str) -> str:
    """A distribution's name as lists spell it."""
    return re.sub(r"[-_.]+", "-", text).lower()


def brought(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """A distribution and all that it requires here."""
    found: dict[str, frozenset[str]] = {}
    left = [(named(name), extras)]
    while left:
        name, extras = left.pop()
        if name in found and extras <= found[name]:
            continue
        found[name] = found.get(name, frozenset()) | extras
        for one in map(Requirement, metadata.requires(name) or []):
            marker = one.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                left.append((named(one.name), frozenset(one.extras)))
    return set(found)


def size(name: str) -> int:
    """Bytes of the files that a distribution installed; of posbias, those of its package without caches."""
    files = metadata.files(name) or []
    if name == "posbias":
        import posbias

        paths = [
            path for path in Path(posbias.__file__).parent.rglob("*") if path.parent.name != "__pycache__"
        ]
    else:
        paths = [Path(str(one.locate())) for one in files if one.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file())


def main() -> None:
    """Print the table, in Markdown."""
    extras = metadata.metadata("posbias").get_all("Provides-Extra") or []
    print("| installation | packages | MB |\n|---|---|---|")
    for extra in ("", *sorted(extras)):
        what = f"posbias[{extra}]" if extra else "posbias"
        try:
            names = brought("posbias", frozenset({extra} if extra else ()))
            print(f"| `{what}` | {len(names)} | {sum(map(size, names)) / 1e6:,.0f} |")
        except metadata.PackageNotFoundError as error:
            print(f"| `{what}` | – | {error.name} is not installed here |")


if __name__ == "__main__":
    main()
