"""What a prediction says where something that decides it is not known; presets as they were published."""

import numpy as np
import pytest
from answers import answered, folder  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from measured import DEPTH, measurement
from refused import refused

from posbias.profiles.measurements import save_measurement
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.configs import PRESETS, preset
from posbias.theory.huggingface import from_huggingface
from posbias.theory.masks import Causal, SlidingWindow
from posbias.theory.mixing import REACH, MeasuredMixing, known_mixing, plausible_mixing
from posbias.theory.positional import ALiBi, NeedsMeasurement
from posbias.theory.prediction import predict, said_under
from posbias.theory.rollout.dispatch import influence, trajectory

TINY_MODELS = ("tiny-alibi", "tiny-learned", "tiny-nope", "tiny-rope", "tiny-window")
PRETRAINED = {"bloom-176b", "bloom-7b1", "mpt-7b", "mpt-30b", "falcon-rw-7b", "smollm2-135m", "gemma-3-270m"}


def test_known_mixing_has_a_coefficient_for_every_layer_and_says_where_from(answered):
    assert {*known_mixing()} == PRETRAINED | set(TINY_MODELS)
    for name, mixing in known_mixing().items():
        depth = PRESETS[name].depth if name in PRESETS else answered("predict", name)["architecture"]["depth"]
        assert len(mixing.coefficients) == depth
        assert mixing.tokens
        assert mixing.text
        assert mixing.source
        assert name in TINY_MODELS or preset(name).mixing == mixing


@pytest.mark.parametrize(("tokens", "known"), [(256, True), (512, True), (513, False), (64, True)])
def test_measured_mixing_reaches_twice_its_length(tokens, known):
    architecture = preset("bloom-7b1")
    assert architecture.mixing.tokens * REACH == 512
    profile = influence(architecture, tokens)
    assert (profile.summary.verdict is not None) == known
    assert known or profile.left_out == ("λ at 513 tokens (measured at 256)",)
    said = [line for line in profile.assumptions if "extrapolated" in line]
    assert len(said) == (tokens != 256)
    assert all((one.summary.verdict is not None) == known for one in trajectory(architecture, tokens)[::10])
    assert {one.summary.verdict for one in trajectory(preset("gpt2"), 16)} == {None}


@pytest.mark.parametrize("depth", [1, DEPTH, 7])
def test_mixing_of_another_depth_is_taken_at_the_same_relative_depth(answered, tmp_path, depth):
    found = measurement()
    save_measurement(found, tmp_path / "m.nc")
    (tmp_path / "a.toml").write_text(f"depth = {depth}\n")
    values = found["mixing"].values.mean(0)
    expected = [np.interp((t + 0.5) / depth * DEPTH - 0.5, np.arange(DEPTH), values) for t in range(depth)]
    answer = answered("predict", str(tmp_path / "a.toml"), "--mixing", str(tmp_path / "m.nc"))
    assert answer["architecture"]["mixing"]["coefficients"] == pytest.approx(expected)
    said = f"mixing: λ of m.nc ({DEPTH} layers) at the same relative depth of {depth} layers"
    assert answer["assumptions"].count(said) == (depth != DEPTH)


def test_learned_positions_end_where_the_model_has_no_more(answered):
    assert preset("gpt2").left_out(1024) == ("learned positions", "λ")
    (longer,) = answered("predict", "tiny-learned", "--tokens", "257")["left_out"]
    short = from_huggingface(GPT2 | {"n_positions": 64})
    for said, own in (
        (preset("gpt2").left_out(1025)[0], "1,024"),
        (longer, "256"),
        (short.left_out(65)[0], "64"),
    ):
        assert said.startswith("learned positions (")
        assert own in said
    assert from_huggingface(GPT2).left_out(10**6) == short.left_out(64) == ("learned positions", "λ")
    refused("max_position_embeddings", lambda: from_huggingface(GPT2 | {"n_positions": 0}))


GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 2}
PUBLISHED = ("bloom-176b", "bloom-7b1", "mpt-7b", "mpt-30b", "falcon-rw-7b")


@pytest.mark.parametrize("depth", [1, 2, 24, 30, 70, 126])
def test_the_default_is_the_median_of_the_models_of_one_definition(depth):
    """Layer t of `depth` lies (t + ½)/depth up each of the five published models; the middle of their five λ."""
    each = []
    for known in (known_mixing()[name].coefficients for name in PUBLISHED):
        places = (np.arange(depth) + 0.5) / depth * len(known) - 0.5
        each.append(np.interp(places, np.arange(len(known)), known))
    assert Architecture(depth).coefficients == pytest.approx(np.median(each, axis=0), rel=1e-12)


@given(tokens=st.integers(3, 80), heads=st.integers(1, 4), depth=st.integers(1, 8))
def test_a_band_is_what_each_known_mixing_would_give(tokens, heads, depth):
    """Profile by profile the rollout with that λ; a verdict only where all of them and the profile share it."""
    architecture = Architecture(depth, (Layer(heads=heads, positional=ALiBi()),))
    profile = predict(architecture, tokens)
    band = profile.band
    each = [
        influence(Architecture(depth, architecture.layers, mixing), tokens)
        for mixing in plausible_mixing(depth).values()
    ]
    same = [one.mass for one, name in zip(each, plausible_mixing(depth), strict=True) if name in PUBLISHED]
    np.testing.assert_array_equal(band.low, np.min(same, axis=0))
    np.testing.assert_array_equal(band.high, np.max(same, axis=0))
    np.testing.assert_array_equal(profile.mass, influence(architecture, tokens).mass)
    settled = Architecture(
        depth, architecture.layers, MeasuredMixing(architecture.coefficients, tokens=tokens)
    )
    verdicts = {influence(settled, tokens).summary.verdict, *(one.summary.verdict for one in each)}
    assert profile.summary.verdict == (verdicts.pop() if len(verdicts) == 1 else None)
    assert profile.left_out == (() if profile.summary.verdict else ("λ",))


def test_beyond_the_length_at_which_models_were_measured_there_is_no_verdict():
    steep = Architecture(6, (Layer(positional=ALiBi(slopes=(2.0,))),))
    assert predict(steep, 512).summary.verdict == "recency"
    assert predict(steep, 513).summary.verdict is None


def widths(name):
    """The width of each layer's window, None where it sees all."""
    masks = [layer.mask for layer in preset(name).stack]
    assert all(isinstance(mask, Causal | SlidingWindow) for mask in masks)
    return [mask.width if isinstance(mask, SlidingWindow) else None for mask in masks]


def test_windows_alternate_as_published():
    assert widths("gemma-3-12b") == ([1024] * 5 + [None]) * 8
    assert widths("gemma-3-1b") == ([512] * 5 + [None]) * 4 + [512] * 2
    # ten of 62 layers are global, the last two local
    assert widths("gemma-3-27b") == ([1024] * 5 + [None]) * 10 + [1024] * 2


@pytest.mark.parametrize(
    ("name", "family"),
    [("mistral-7b-v0.1", "mistral"), ("gemma-2-2b", "gemma2"), ("gpt2", "gpt2"), ("smollm3-3b", "smollm3"),
     ("gpt-oss-120b", "gpt_oss")],
)  # fmt: skip
def test_presets_are_the_defaults_of_transformers_where_those_are_a_models(name, family):
    from transformers import AutoConfig

    theirs, stack = AutoConfig.for_model(family), preset(name).stack
    heads, every = theirs.num_attention_heads, getattr(theirs, "sliding_window", None)
    kinds = getattr(theirs, "layer_types", None) or ["sliding_attention" if every else ""] * len(stack)
    keys = getattr(theirs, "num_key_value_heads", heads)
    assert len(stack) == theirs.num_hidden_layers
    assert {(layer.heads, layer.groups or layer.heads) for layer in stack} == {(heads, keys)}
    assert widths(name) == [every if kind == "sliding_attention" else None for kind in kinds]


@pytest.mark.parametrize("name", PRESETS)
def test_what_needs_measurement_gets_no_verdict(name: str):
    architecture = preset(name)
    assert (architecture.name, len(architecture.stack)) == (name, PRESETS[name].depth)
    left_out = {
        part
        for layer in architecture.layers
        if isinstance(layer.positional, NeedsMeasurement)
        for part in layer.positional.unknown_at(64)
    } | ({"λ"} - {"λ" for known in known_mixing() if known == name})
    profile = influence(architecture, 64)
    assert profile.mass.sum() + profile.missing_mass == pytest.approx(1.0, abs=1e-12)
    assert profile.exact == all(isinstance(layer.positional, ALiBi) for layer in architecture.layers)
    assert set(profile.left_out) == left_out
    assert (profile.summary.verdict is None) == bool(left_out)


def test_the_assumed_mixing_is_none_of_the_known_ones_but_is_named_where_it_fails():
    assert (
        said_under({"trained_median": False, "a": True, "b": True})
        == "2 of 2 known λ (not under trained_median)"
    )
    assert said_under({"trained_median": True, "a": True, "b": False}) == "1 of 2 known λ (not under b)"
