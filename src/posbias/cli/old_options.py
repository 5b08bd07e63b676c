"""Options of 0.1 under their old names: they work until 0.3, and a line on stderr names the new one."""

import logging
from collections.abc import Sequence

from posbias.errors import InvalidValueError

log = logging.getLogger(__name__)
_NAMED = {"--quick": "--effort quick", "--full": "--effort full"}
_NUMBER = "--effort NUMBER"
EVERYWHERE = {"--again": "--rerun", "--scramble": "--shuffle-tokens"}
"""What every command calls differently."""
BY_COMMAND = {
    "simulate layernorm": {"--samples": _NUMBER},
    "train": {**_NAMED, "--iterations": _NUMBER, "--seeds": "--networks NUMBER"},
    "verify": {"--instances": _NUMBER},
    "paper kim2026": {**_NAMED, "--samples": _NUMBER},
    "paper wu2025": _NAMED,
    "paper herasimchyk2026": _NAMED,
    "paper claims": _NAMED,
    "paper all": _NAMED,
}
"""What single commands do."""


def renewed(words: Sequence[str]) -> list[str]:
    """A command line with the new options in the place of the old.

    Raises `InvalidValueError` for two options that are one today.
    """
    command = next((name for name in BY_COMMAND if name.split() == [*words[: len(name.split())]]), "")
    names = EVERYWHERE | BY_COMMAND.get(command, {})
    new: list[str] = []
    last: dict[str, str] = {}
    for word in words:
        old, equals, given = word.partition("=")
        option, _, value = names.get(old, old).partition(" ")
        if old.startswith("--") and last.setdefault(option, old) != old:
            raise InvalidValueError(f"{old[2:]}: given together with {last[option]}, one of the two needed")
        if old in names:
            log.warning("%s is now %s; the old option works until posbias 0.3", old, names[old])
            new += [option, *([value] if value not in ("", "NUMBER") else [])]
            new += [given] if equals else []
        else:
            new.append(word)
    return new
