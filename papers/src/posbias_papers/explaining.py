"""Why a claim does not come out as the paper says it: what a person found out, beside what was computed.

`explanations.toml` here, and in the folder of a paper where it has one, holds a sentence or more for a claim,
under its id ("wu2025/fig2/3"), its study and sentence ("wu2025/fig2: The wider the window, …"), or its paper and
sentence, for one that several figures repeat.
"""

import functools
import tomllib
from importlib.resources import files

from posbias.core.errors import InputFileError

FILE = "explanations.toml"


def explanation_of(key: str, study: str, sentence: str) -> str:
    """What is known of why the claim `key`, `sentence` of `study`, comes out as it does; empty if nothing is.

    Raises `InputFileError` for explanations that are no TOML of texts, or two for one key.
    """
    paper = study.partition("/")[0]
    known = explanations()
    for name in (key, f"{study}: {sentence}", f"{paper}: {sentence}"):
        if name in known:
            return " ".join(known[name].split())
    return ""


@functools.cache
def explanations() -> dict[str, str]:
    """All explanations by key. Raises as `explanation_of`."""
    found: dict[str, str] = {}
    room = files("posbias_papers")
    places = [room, *(one for one in room.iterdir() if one.is_dir())]
    for path in (place / FILE for place in sorted(places, key=lambda one: one.name)):
        if not path.is_file():
            continue
        try:
            read = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputFileError(f"{path}: not valid TOML: {error}") from None
        for name, text in read.items():
            if not isinstance(text, str):
                raise InputFileError(f"{path}: {name!r} is no text, one sentence or more needed")
            if name in found:
                raise InputFileError(f"{path}: {name!r} is explained twice, once needed")
            found[name] = text
    return found
