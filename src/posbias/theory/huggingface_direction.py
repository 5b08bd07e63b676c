"""Whether a Hugging Face model's attention looks back alone: its classes, and keys that say otherwise.

A decoder family's file may belong to a model that looks both ways: by a class of its own (`architectures`,
`auto_map`), by `is_causal: false`, by a flag. It is read as what it is, or refused by the key's name.
"""

import re
from collections.abc import Iterator
from typing import Any

from posbias.core.arguments import shortened
from posbias.core.errors import InvalidValueError
from posbias.theory.huggingface_keys import Config, inner

_HEAD = re.compile(
    r"(text)?(pretrained)?(model|lmheadmodel|doubleheadsmodel|for(causallm|"
    r"(sequence|token|image)classification|questionanswering|multiplechoice|conditionalgeneration))"
)
_ENCODER_HEAD = re.compile(r"(text|generation)?(model|encoder|decoder|lmheadmodel|lmmodel|for\w+)")
"""What may stand behind a family's name in the name of one of its classes, of decoders and of encoders."""
_OTHERWISE = {"RefinedWeb": "rw", "RefinedWebModel": "rw", "posbias_tiny": "tiny"}
_AS_LLAMA = ("internlm3", "iquestcoder")
"""Families whose classes are named otherwise, and those whose class in transformers is Llama's."""
_BOTH = re.compile(r"bi_?dir|non_?causal|prefix_?lm", re.IGNORECASE)
PREFIXED = "paligemma"
"""The family whose whole prompt, pictures and text, is a prefix in which every token sees every other."""
_CAUSAL = re.compile(r"(^|_)causal(_|$)")
_CODE = re.compile(r"bi_?dir|_bi$|bi_?model|encoder|embed|mntp|non_?causal|prefix_?lm", re.IGNORECASE)
"""Words of keys, and of files with a model's code, whose attention is not causal."""


def check_classes(config: Config, names: tuple[str, ...], encoder: bool) -> None:
    """Raises `InvalidValueError` for a class that is not a family's; `names` are its container's and its own."""
    known = [_OTHERWISE.get(name, re.sub("[_-]", "", name).lower().removesuffix("text")) for name in names]
    known += ["llama"] if names[-1] in _AS_LLAMA else []
    for key, code in _classes(config):
        module, _, name = code.rpartition(".")
        rest = re.sub("_", "", name).lower()
        for prefix in ("tf", "flax"):
            rest = rest.removeprefix(prefix)
        folded = rest
        for family in known:
            rest = rest.removeprefix(family)
        file = re.sub(r".*\.|.*--|modell?ing_|_", "", module).lower()
        named = any(family in file or file in family for family in known)
        own = rest != folded and (_ENCODER_HEAD if encoder else _HEAD).fullmatch(rest)
        if not own or not named or (not encoder and _CODE.search(module)):
            raise InvalidValueError(
                f"{key}: expected a class of family {names[-1]}, got {shortened(code)}, whose attention may look "
                "both ways; say what it is in a file of your own (docs/own.md)"
            )


def _classes(config: Config) -> Iterator[tuple[str, str]]:
    """The names of a model's classes, with the key that has them."""
    code = [given for key, given in inner(config, "auto_map").items() if key.startswith("AutoModel")]
    for key, given in (("architectures", config.get("architectures") or []), ("auto_map", code)):
        if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
            raise InvalidValueError(f"{key}: expected names of classes, got {shortened(given)}")
        yield from ((key, name) for name in given)


def not_causal(config: Config, container: Any) -> str | None:
    """The key that says that a decoder looks both ways; None where none does.

    `container` is the `model_type` of the whole file: the prompt of PaliGemma is a prefix in full. Raises
    `InvalidValueError` for flags that say so of a part of the tokens, or in words that are not known.
    """
    if container == PREFIXED:
        return "model_type"
    for key, given in config.items():
        if given is None or isinstance(given, dict) or key == "is_causal":
            continue
        pictures = given == "vision" and key == "use_bidirectional_attention"
        both = (_BOTH.search(key) and given and not pictures) or (_CAUSAL.search(key) and given is False)
        words = isinstance(given, str) and re.search("attention|attn|mask", key) and _BOTH.search(given)
        if both or words:
            _refuse(key, given)
    given = config.get("is_causal", True)
    if given is not None and not isinstance(given, bool):
        _refuse("is_causal", given)
    return "is_causal" if given is False else None


def _refuse(key: str, given: Any) -> None:
    raise InvalidValueError(
        f"{key}: expected {'false' if _BOTH.search(key) else 'a causal model'}, got {shortened(given)}; such a "
        "mask is not predicted"
    )
