"""Configurations as their makers publish them are read as the models are that transformers builds from them.

`published_configurations.json` has a row for each: the keys that matter with the values of the released file
(layers cut to the first few, and lists by layer with them), and where they are to be seen. What is read of a row
is held against a model of the same keys, made narrow: the keys that the queries of each layer see, around and
beyond every window, from the mask that it is given; angles and gain from the cosines and sines that it is given;
which layers rotate, from the queries of one token at several positions.
"""

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from families import SPECIAL, small, words
from posbias import encodings
from posbias.core.errors import InvalidValueError
from posbias.theory.huggingface import from_huggingface, is_attention
from posbias.theory.huggingface_families import FAMILIES
from posbias.theory.masks import bounds

DATA = json.loads(Path(__file__).with_name("published_configurations.json").read_text(encoding="utf-8"))
ROWS = DATA["rows"]
LEFT_OUT = [
    {"name": f"{family}, all left out", "config": {"model_type": family, "num_hidden_layers": 6}}
    for family in FAMILIES
    if family in CONFIG_MAPPING and family != "posbias_tiny"
]
"""Files that leave out all that they can, also of families whose published spelling was not found."""
READ = [row for row in (*ROWS, *LEFT_OUT) if "refused" not in row]
QUERIES, TOKENS = (0, 1, 127, 128, 129, 511, 4095, 4096, 8191, 8192, 16390), 16400
"""Positions around every window, and the length of the text."""
PROMPT = torch.full((1, 5), 5)
"""One token again and again: what its queries differ by is their position."""
EAGER = (  # noqa: SIM905
    "bloom codegen deepseek_v32 falcon glm_moe_dsa gpt_neox_japanese gptj megatron-bert mpt openai-gpt "
    "paligemma rembert"
).split()
"""Families that add masks to their logits themselves: seen from their attention, as far as a short text tells."""
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "block_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "swa_num_attention_heads")
GROUPS = ("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads", "num_global_key_value_heads")
KEPT = (
    r"head_dim|window|chunk|position|n_ctx|layers?$|layer_types|attn_idxs|rotary|rope|theta|compress|max_seq|conv_L|"
    r"num_(attention|key)"
)
"""Keys that say where a layer looks, how far and by which angles: never made small."""


def narrow(config: dict[str, Any]) -> dict[str, Any]:
    """The same with few heads of the published width, and small where nothing depends on it."""
    default = CONFIG_MAPPING[config["model_type"]]().get_text_config()
    few = 4 if config["model_type"] in ("codegen", "gpt_oss") else 2
    whole = {**default.to_dict(), **config}
    hidden, heads = (next(whole[key] for key in keys if whole.get(key)) for keys in (HIDDEN, HEADS))
    fitting = small(whole) | SPECIAL.get(default.model_type, {})
    made = config | {key: size for key, size in fitting.items() if not re.search(KEPT, key)}
    made |= {key: few * (config.get("head_dim") or hidden // heads) for key in HIDDEN if key in whole}
    made |= {key: few for key in HEADS if key in whole}
    return made | {key: 1 if config.get(key, heads) < heads else few for key in GROUPS if whole.get(key)}


def build(config: dict[str, Any], attention: str) -> Any:
    """The text's model that transformers builds, narrow; the whole model where that gives the text its mask."""
    config = copy.deepcopy(config)  # configuration classes write into what they are given
    named = {key: part for key, part in config.items() if isinstance(part, dict) and "model_type" in part}
    parts = {key: narrow(part) for key, part in named.items()}
    made = config | parts if "text_config" in parts else narrow(config)
    whole = CONFIG_MAPPING[config["model_type"]].from_dict(made)
    part = whole if config["model_type"] == "paligemma" else whole.get_text_config()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.AutoModel.from_config(part, attn_implementation=attention).eval()


class Seen:
    """What each layer of a model is given: its mask, its tables of sines, and its queries."""

    def __init__(self, config: dict[str, Any]) -> None:
        eager = config["model_type"] in EAGER
        self.masks: dict[int, Any] = {}
        self.tables: dict[int, Any] = {}
        self.queries: dict[int, torch.Tensor] = {}
        transformers.AttentionInterface.register("posbias_probe", self._attend)
        transformers.AttentionMaskInterface.register(
            "posbias_probe", lambda mask_function, **_: mask_function
        )
        self.model = build(config, "eager" if eager else "posbias_probe")
        self.text = self.model.config.get_text_config()
        for module in self.model.modules():
            if hasattr(module, "layer_idx"):
                module.register_forward_pre_hook(self._tabled, with_kwargs=True)
        with torch.no_grad():
            given = (
                {"token_type_ids": 0 * PROMPT} if config["model_type"] == "paligemma" else {}
            )  # all a prefix
            outputs = self.model(PROMPT, use_cache=False, output_attentions=eager, **given)
        self.attention = dict(enumerate(layer[0, 0] for layer in outputs.attentions)) if eager else {}
        self.masks |= {layer: attention > 0 for layer, attention in self.attention.items()}

    def _attend(self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **_: Any) -> Any:
        self.masks[module.layer_idx], self.queries[module.layer_idx] = attention_mask, query
        return value.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[-1]), None

    def _tabled(self, module: Any, args: Any, kwargs: Any) -> None:
        given = kwargs.get("position_embeddings")
        if isinstance(given, dict):
            given = given.get(getattr(module, "rope_layer_type", None))
        if given is None and hasattr(module, "embed_positions"):  # a table of its own
            given = torch.complex(*reversed(module.embed_positions[:5].chunk(2, -1)))
        if given is not None:
            self.tables[module.layer_idx] = given

    def keys(self, layer: int, query: int) -> torch.Tensor:
        """The keys that a query sees."""
        mask = self.masks[layer]
        if mask is None:  # no mask hides nothing
            return torch.arange(TOKENS)
        row = mask[query] if torch.is_tensor(mask) else mask(0, 0, torch.tensor(query), torch.arange(TOKENS))
        return torch.nonzero(row.expand(TOKENS if row.dim() == 0 else -1)).flatten()

    def turns(self, layer: int) -> bool:
        """Whether it rotates its queries. Where layers mix tokens by other means, being given tables says so."""
        if layer in self.attention:  # logits of like tokens lie on a line where nothing but a bias acts
            alike = self.attention[layer][4].log().diff().diff().abs().max() < 1e-5
        elif len(self.queries) == self.text.num_hidden_layers:
            query = self.queries[layer]
            alike = torch.allclose(query[:, :, 1], query[:, :, 4], rtol=1e-3, atol=1e-5)
        else:
            alike = False
        return layer in self.tables and not alike

    def angles(self, layer: int) -> tuple[np.ndarray, float]:
        """The angle between neighbouring positions of every rotated pair, and the gain on queries and keys."""
        table = self.tables[layer]
        turned = table if torch.is_tensor(table) else torch.complex(table[0].float(), table[1].float())
        turned = turned.reshape(-1, *turned.shape[-2:])[0]
        half = turned.shape[-1] // 2
        for pairs in (turned[:, :half], turned[:, ::2]):  # of the two layouts, and neither
            if not turned.is_complex() or torch.is_tensor(table):
                break
            if torch.equal(turned, torch.cat((pairs, pairs), -1)) or torch.equal(
                turned, pairs.repeat_interleave(2, -1)
            ):
                turned = pairs
                break
        return (turned[1] / turned[0]).angle().double().numpy(), float(turned[0].abs().max())


@pytest.mark.parametrize("row", READ, ids=lambda row: row["name"])
def test_what_is_read_of_a_published_configuration_is_what_its_model_does(row):
    config = row["config"]
    architecture, seen = from_huggingface(config), Seen(row.get("built", config))
    types = getattr(seen.text, "layer_types", None)
    assert architecture.depth == seen.text.num_hidden_layers
    for t, (layer, (_, encoding)) in enumerate(zip(architecture.stack, words(architecture), strict=True)):
        assert is_attention(layer) <= (t in seen.masks), t
        if not is_attention(layer):  # the mask of a state, a convolution, compressed entries is another
            continue
        keys = bounds(layer.mask, TOKENS)
        assert keys is not None
        for query in QUERIES if t not in seen.attention else range(len(PROMPT[0])):
            high = min(keys.high[query], len(PROMPT[0]) - 1) if t in seen.attention else keys.high[query]
            expected = torch.arange(int(keys.low[query]), int(high) + 1)
            assert torch.equal(seen.keys(t, query), expected), (t, query)
        assert (encoding == "rotary") == seen.turns(t), t
        if encoding == "rotary":
            theirs, amplitude = seen.angles(t)
            angles, gain = encodings.rotary_of(config, types[t] if types else None)
            np.testing.assert_allclose(angles, theirs, rtol=1e-4, err_msg=f"layer {t}")
            assert gain == pytest.approx(amplitude, rel=1e-5), t


@pytest.mark.parametrize("row", [row for row in ROWS if "refused" in row], ids=lambda row: row["name"])
def test_what_is_not_predicted_is_refused_by_the_name_of_its_key(row):
    with pytest.raises(InvalidValueError, match=rf"^[\w.]*{row['refused']}: "):
        from_huggingface(row["config"])
