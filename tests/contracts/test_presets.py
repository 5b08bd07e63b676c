"""Presets: layers as they were published, and what is not known of them is said."""

import numpy as np
import pytest

from posbias.cli.terminal import describe
from posbias.core.errors import InvalidValueError
from posbias.core.formats import save_json
from posbias.profiles.measurements import load_profile
from posbias.reports.answers.predictions import Profile
from posbias.reports.plots import draw_profile, new_figure
from posbias.theory.configs import PRESETS, preset
from posbias.theory.encodings import ALiBi, NeedsMeasurement, NoPE, alibi_slopes
from posbias.theory.masks import Causal, Chunked, SlidingWindow
from posbias.theory.mixing import known_mixing
from posbias.theory.rollout.dispatch import influence, trajectory


@pytest.mark.parametrize("name", PRESETS)
def test_influence_is_a_distribution(name):
    assert preset(name).name == name
    assert len(preset(name).stack) == PRESETS[name].depth
    profile = influence(preset(name), tokens=300)
    assert profile.mass.sum() + profile.missing_mass == pytest.approx(1.0, abs=1e-12)
    assert (profile.mass > 0).all()
    assert profile.attrs["exact"] == all(isinstance(layer.positional, ALiBi) for layer in preset(name).layers)


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_not_exact_is_said(name):
    one, architecture = PRESETS[name], preset(name)
    exact = all(isinstance(layer.positional, ALiBi) for layer in architecture.layers)
    others = [said for said in architecture.assumptions if not said.startswith("mixing: ")]
    assert bool(others) is not exact
    assert ("positional logits" in one.exact) is exact
    assert set(architecture.assumptions) < set(one.assumed)


def widths(name):
    """The width of each layer's window, None where it sees all."""
    masks = [layer.mask for layer in preset(name).stack]
    assert all(isinstance(mask, Causal | SlidingWindow) for mask in masks)
    return [mask.width if isinstance(mask, SlidingWindow) else None for mask in masks]


def test_windows_alternate_as_published():
    assert widths("mistral-7b-v0.1") == [4096] * 32
    assert widths("gemma-2-9b") == [4096, None] * 21
    assert widths("gemma-3-12b") == ([1024] * 5 + [None]) * 8
    assert widths("gemma-3-1b") == ([512] * 5 + [None]) * 4 + [512] * 2
    # ten of 62 layers are global, the last two local
    assert widths("gemma-3-27b") == ([1024] * 5 + [None]) * 10 + [1024] * 2
    assert widths("gpt-oss-20b") == [128, None] * 12
    assert widths("llama-3-8b") == [None] * 32


def test_layers_of_2026_are_of_the_kinds_that_were_published():
    said = {name: preset(name) for name in PRESETS}
    assert widths("gemma-4-31b") == ([1024] * 5 + [None]) * 10
    assert widths("gemma-4-e2b") == ([512] * 4 + [None]) * 7
    assert widths("olmo-3-32b") == ([4096] * 3 + [None]) * 16
    assert widths("exaone-4.0-32b") == ([4096] * 3 + [None]) * 16
    assert widths("exaone-4.0-1.2b") == [None] * 30
    # convolutions see three tokens
    attends = {2, 5, 8, 10, 12, 14}
    assert widths("lfm2-1.2b") == [None if t in attends else 3 for t in range(16)]
    assert [layer.mask for layer in said["llama-4-scout"].stack] == ([Chunked(8192)] * 3 + [Causal()]) * 12
    for name in ("llama-4-maverick", "exaone-4.0-32b"):
        assert [layer.positional == NoPE() for layer in said[name].stack] == (
            [False, False, False, True] * (said[name].depth // 4)
        )
    linear = [layer.positional.encoding == "" for layer in said["qwen3-next-80b-a3b"].stack]
    assert linear == [True, True, True, False] * 12
    assert "what 20 layers read of an earlier layer" in said["gemma-4-e2b"].left_out(64)


def test_every_fourth_layer_of_smollm3_has_no_encoding():
    bare = [layer.positional == NoPE() for layer in preset("smollm3-3b").stack]
    assert bare == [False, False, False, True] * 9


def test_slopes_are_in_the_units_of_the_softmax():
    for name, scale in (
        ("bloom-176b", 1.0),
        ("mpt-30b", 1.0),
        ("falcon-rw-1b", 0.125),
        ("falcon-rw-7b", 0.125),
    ):
        layer = preset(name).layers[0]
        np.testing.assert_array_equal(layer.head_logits().slopes, scale * alibi_slopes(layer.heads))


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        ("mistral-7b-v0.1", "mistral"),
        ("gemma-2-2b", "gemma2"),
        ("gemma-3-4b", "gemma3_text"),
        ("gpt2", "gpt2"),
        ("smollm3-3b", "smollm3"),
        ("gpt-oss-120b", "gpt_oss"),
    ],
)
def test_defaults_of_transformers_agree(name, model_type):
    """Configurations that transformers builds without any key, where they are those of a preset."""
    from transformers import AutoConfig

    theirs, architecture = AutoConfig.for_model(model_type), preset(name)
    assert architecture.layers[0].heads == theirs.num_attention_heads
    assert (architecture.layers[0].groups or architecture.layers[0].heads) == getattr(
        theirs, "num_key_value_heads", theirs.num_attention_heads
    )
    if model_type != "gemma3_text":  # its default depth and window are no model's
        assert architecture.depth == theirs.num_hidden_layers
        window = getattr(theirs, "sliding_window", None)
        assert set(widths(name)) - {None} == ({window} if window else set())
        if getattr(theirs, "layer_types", None) is not None:
            slides = [width is not None for width in widths(name)]
            assert slides == [kind == "sliding_attention" for kind in theirs.layer_types]


@pytest.mark.parametrize(("name", "near"), [("bloom-7b", "bloom-7b1"), ("GPT2-XL", "gpt2-xl"), ("", "")])
def test_an_unknown_name_is_answered_with_the_nearest(name, near):
    with pytest.raises(InvalidValueError, match=rf"^preset: .*{near}"):
        preset(name)


@pytest.mark.parametrize("name", PRESETS)
def test_what_needs_measurement_gets_no_verdict(name: str):
    architecture = preset(name)
    left_out = {
        part
        for layer in architecture.layers
        if isinstance(layer.positional, NeedsMeasurement)
        for part in layer.positional.unknown_at(64)
    } | ({"λ"} - {"λ" for known in known_mixing() if known == name})
    profile = influence(architecture, 64)
    assert set(profile.left_out) == left_out
    assert (profile.summary.verdict is None) == bool(left_out)
    lines = "\n".join(describe(profile))
    assert ("no verdict" in lines) == bool(left_out)
    for variant in trajectory(architecture, 16)[::8]:
        assert (variant.summary.verdict is None) == bool(left_out)


def test_no_verdict_outlives_a_file_and_stands_in_the_picture(tmp_path):
    profile = influence(preset("smollm2-135m"), 64)
    save_json(Profile.of(profile).model_dump(mode="json"), tmp_path / "p.json")
    read = load_profile(tmp_path / "p.json")
    assert read.left_out == ("rotary positions",)
    assert read.summary.verdict is None
    assert read.without_first().summary.verdict is None
    title = draw_profile(new_figure().subplots(), read).get_title()
    assert "no verdict" in title
    known = draw_profile(new_figure().subplots(), influence(preset("bloom-7b1"), 64))
    assert known.get_title() == "bloom-7b1, 64 positions"
