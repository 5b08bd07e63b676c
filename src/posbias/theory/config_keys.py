"""The keys of a Hugging Face `config.json`: looked up, checked as they are read, and remembered as used.

    config = Config({"n_layer": 70}).in_todays_words()
    config.integer("num_hidden_layers")   # 70
    config.used                           # {"num_hidden_layers"}

A key counts as used when it was looked up, so that a remark can name all others. A value of another type than is
expected raises `InvalidValueError`, which names the key.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Any

from posbias.core.errors import wrong

DEPTH, HEADS, KEY_HEADS, WIDTH, HEAD_SIZE, LENGTH, TRAINED = (
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim"),
    *("max_position_embeddings", "original_max_position_embeddings"),
)
OLDER_KEYS = {
    DEPTH: ("n_layer", "n_layers"),
    HEADS: ("n_head", "n_heads"),
    KEY_HEADS: ("num_kv_heads", "n_head_kv"),
    WIDTH: ("n_embd", "d_model", "n_embed"),
    LENGTH: ("n_positions", "max_seq_len"),
}
"""Today's keys → their older spellings."""
DEFAULTS_FILE = Path(__file__).parent / "huggingface_defaults.json"
DEFAULTS: Mapping[str, Mapping[str, Any]] = json.loads(DEFAULTS_FILE.read_text(encoding="utf-8"))
"""Family → what its configuration class of transformers fills in, of the keys that are read here.

`python tools/families.py defaults` writes the file."""


class Config(dict[str, Any]):
    """Keys of a configuration with their values; `used` are those that were looked up.

    `config | keys` is a changed copy, whose lookups count as those of `config`.
    """

    def __init__(self, keys: Mapping[str, Any], used: set[str] | None = None) -> None:
        if not isinstance(keys, Mapping):
            raise wrong("config", "the contents of a config.json, by key", keys)
        super().__init__(keys)
        self.used: set[str] = set() if used is None else used

    def __getitem__(self, key: str) -> Any:
        self.used.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.used.add(key)
        return super().get(key, default)

    def __or__(self, keys: Mapping[str, Any]) -> "Config":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Config({**self, **keys}, self.used)

    def in_todays_words(self) -> "Config":
        """A copy with today's keys where it has older ones."""
        keys = {**self}
        for today, older in OLDER_KEYS.items():
            given = next((self[key] for key in (today, *older) if self.get(key) is not None), None)
            keys |= {} if given is None else {today: given}
        return Config(keys)

    def inner(self, key: str) -> "Config":
        """The keys below a key; none where it is not given."""
        given = self.get(key) or {}
        if not isinstance(given, dict):
            raise wrong(key, "keys with values", given)
        return Config(given)

    def flag(self, key: str, default: bool) -> bool:
        """What a key says, true or false."""
        given = self.get(key, default)
        if not isinstance(given, bool):
            raise wrong(key, "true or false", given)
        return given

    def integer(self, key: str, least: int = 1, most: float = math.inf, default: int | None = None) -> int:
        """What a key holds, or where it is missing the default, as an integer from `least` to `most`."""
        given = self.get(key, default)
        if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
            wanted = f">= {least}" if most == math.inf else f"from {least} to {most:,}"
            older = f" (or {', '.join(OLDER_KEYS[key])})" if key in OLDER_KEYS else ""
            raise wrong(key, f"an integer {wanted}{older}", given)
        return given

    def number(self, key: str, above: bool = False, default: float | None = None) -> float:
        """What a key holds, or the default, as a finite number ≥ 0, or `above` it."""
        given: Any = default if self.get(key) is None else self[key]
        real = isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < math.inf
        if not real or (above and not given):
            raise wrong(key, f"a number {'>' if above else '>='} 0", given)
        return float(given)

    def by_layer(self, key: str, kind: type | tuple[type, ...] = int) -> list[Any]:
        """What a key lists; [] where it is not given."""
        given = self.get(key) or []
        if not isinstance(given, list) or not all(isinstance(value, kind) for value in given):
            raise wrong(key, "a list with a value of each layer", given)
        return given

    def filled(self, text: str) -> str:
        """A text with the integers of the configuration in place of keys in braces."""
        keys = {key for _, key, _, _ in Formatter().parse(text) if key}
        return text.format(**{key: f"{self.integer(key):,}" for key in keys})
