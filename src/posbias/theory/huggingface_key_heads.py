"""Key-value heads of Hugging Face models: how many keys a layer keeps of each token, as `Layer.groups` has it.

A configuration says `num_key_value_heads`; what it leaves out is its family's default. A few families say it in
other words. That the numbers are right is tested on the caches of models that transformers builds.
"""

from collections.abc import Callable, Mapping

from posbias.core.errors import InvalidValueError
from posbias.theory.huggingface_keys import DEFAULTS, Config, flag, integer
from posbias.theory.huggingface_layers import FULL, SLIDING

_KEY, _LATENT = "num_key_value_heads", "kv_lora_rank"
_FALCON = ("num_kv_heads", "n_head_kv")
_LATENT_FAMILIES = (  # noqa: SIM905
    "axk1 deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm4_moe_lite glm_moe_dsa kimi_linear minicpm3 "
    "mistral4 youtu"
).split()


def key_heads(config: Config, family: str, kind: str, heads: int) -> int | None:
    """The key-value heads of a layer of a kind; None for as many as heads.

    Latent attention keeps one vector of each token, which all heads read. A default that does not divide the heads
    is not this model's: as many as heads are counted. Raises `InvalidValueError` for a number given that does not
    divide them.
    """
    if config.get(_LATENT) is not None:
        return 1
    read = _OTHERWISE.get(family, _plain)
    key, given = read(config, kind)
    if given is None and key not in config:
        given = DEFAULTS.get(family, {}).get(_KEY)
        given = None if given is None or heads % given else given
    if given is not None and heads % given:
        raise InvalidValueError(f"{key}: {given} given, a number that divides the {heads} heads needed")
    return None if given == heads else given


Read = tuple[str, int | None]


def _plain(config: Config, kind: str) -> Read:
    return _KEY, None if config.get(_KEY) is None else integer(config, _KEY)


def _falcon(config: Config, kind: str) -> Read:
    """One for all heads, unless `new_decoder_architecture` or `multi_query` says otherwise."""
    said = next((key for key in _FALCON if config.get(key) is not None), None)
    given = None if said is None else integer(config, said)
    if flag(config, "new_decoder_architecture", False) or config.get("model_type") == "RefinedWeb":
        return said or _FALCON[0], given
    if flag(config, "multi_query", True):
        return "multi_query", 1
    return said or _FALCON[0], given


def _big_code(config: Config, kind: str) -> Read:
    return "multi_query", 1 if flag(config, "multi_query", True) else None


def _gemma4(config: Config, kind: str) -> Read:
    """Full layers may have a number of their own."""
    key = "num_global_key_value_heads"
    if kind == FULL and flag(config, "attention_k_eq_v", False) and config.get(key) is not None:
        return key, integer(config, key)
    return _plain(config, kind)


def _mimo(config: Config, kind: str) -> Read:
    """Sliding layers have twice as many."""
    key, given = _plain(config, kind)
    given = DEFAULTS["mimo_v2_flash"][_KEY] if given is None else given
    return key, 2 * given if kind == SLIDING else given


def _one(config: Config, kind: str) -> Read:
    return _KEY, 1


_OTHERWISE: Mapping[str, Callable[[Config, str], Read]] = {
    **dict.fromkeys(_LATENT_FAMILIES, _one),
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), _falcon),
    "gpt_bigcode": _big_code,
    "gemma4_text": _gemma4,
    "mimo_v2_flash": _mimo,
}
