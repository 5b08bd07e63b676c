"""Predict: from an architecture to the influence of every position."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from command import called
from dense import last_row
from project import install
from scipy.special import comb

import posbias
from posbias.theory.huggingface import from_huggingface
from posbias.theory.mixing import plausible_mixing
from posbias.theory.variation import vary_two

CAUSAL = "depth = 6\nmixing = {kind = 'constant', value = 0.5}\n[[layers]]\nheads = 2\n"


def even(mask, depth, weight):
    """The last row of the product of (1 − λ)I + λA where every layer attends evenly over what it sees."""
    return last_row([mask / mask.sum(axis=1, keepdims=True)] * depth, [weight] * depth)


def test_an_own_file(answered, folder):
    (folder / "own.toml").write_text(CAUSAL)
    answer = answered("predict", "own.toml", "--tokens", 40)
    np.testing.assert_allclose(answer["profile"], even(np.tri(40), 6, 0.5), rtol=1e-12)
    assert answer["summary"]["verdict"] == "primacy"


def test_a_configuration_of_hugging_face(answered, folder):
    config = {"model_type": "bloom", "n_layer": 4, "n_head": 8, "hidden_size": 64}
    (folder / "config.json").write_text(json.dumps(config))
    profile = answered("predict", "config.json", "--tokens", 30, "--mixing", "0.3")["profile"]
    alibi = posbias.Layer(heads=8, positional=posbias.ALiBi())
    expected = posbias.predict(posbias.Architecture(4, (alibi,), posbias.ConstantMixing(0.3)), tokens=30)
    np.testing.assert_allclose(profile, expected.mass, rtol=1e-12)


def test_a_published_configuration_of_a_family_with_windows(folder):
    config = {"model_type": "mistral", "num_hidden_layers": 2, "num_attention_heads": 4, "sliding_window": 8}
    (folder / "config.json").write_text(json.dumps(config))
    layers = posbias.load_architecture(folder / "config.json").layers
    assert [layer.mask for layer in layers] == [posbias.SlidingWindow(8)]
    rotary = posbias.encodings.rotary_of(config | {"hidden_size": 64, "head_dim": 16})
    np.testing.assert_allclose(rotary.angles, 10_000.0 ** -(np.arange(8) / 8), rtol=1e-12)


def test_a_preset_and_a_name_of_the_hub(answered):
    """With the λ that was published for it, the U of the paper's figure."""
    by_preset = answered("predict", "bloom-176b", "--tokens", 256)
    by_name = answered("predict", "bigscience/bloom", "--tokens", 256)
    assert (by_preset["summary"]["verdict"], by_preset["left_out"]) == ("U", [])
    assert by_preset["profile"] == by_name["profile"]
    assert sum(by_preset["profile"]) == pytest.approx(1.0, abs=1e-12)


def test_in_python_a_name_and_a_path_work_as_in_the_shell(answered, folder):
    by_name = posbias.predict("bloom-176b", 256)
    assert by_name.mass.tolist() == answered("predict", "bloom-176b")["profile"]
    assert by_name.mass.tolist() == posbias.predict("BigScience/BLOOM", 256).mass.tolist()
    (folder / "own.toml").write_text(CAUSAL)
    expected = answered("predict", "own.toml", "--tokens", 40)["profile"]
    assert posbias.predict(folder / "own.toml", 40).mass.tolist() == expected
    assert posbias.predict(str(folder / "own.toml"), 40).mass.tolist() == expected
    with pytest.raises(posbias.PosbiasError, match=r"bloom-17b: expected a file.*did you mean 'bloom-176b'"):
        posbias.predict("bloom-17b", 256)


def test_a_name_goes_wherever_an_architecture_does(folder):
    (folder / "own.toml").write_text(CAUSAL)
    own, given = str(folder / "own.toml"), posbias.load_architecture(folder / "own.toml")
    for made in (
        lambda one: posbias.influence(one, 16).mass,
        lambda one: posbias.rollout(one, 16),
        lambda one: [profile.mass for profile in posbias.trajectory(one, 16)],
        lambda one: [profile.mass for _, profile in posbias.vary(one, "depth", [2, 3], 16)],
        lambda one: [profile.mass for (profile,) in vary_two(one, [("depth", [2]), ("window", [4])], 16)],
        lambda one: [found.distance for found in posbias.design(one, {"depth": [2, 3]}, tokens=16).front],
        lambda one: posbias.cache_of(one, 16).keys,
    ):
        np.testing.assert_array_equal(made(own), made(given))
    assert posbias.load_architecture(given) is given


def test_unions_are_modules_to_import_from():
    from posbias.encodings import ALiBi, rotary_of
    from posbias.masks import SlidingWindow
    from posbias.mixing import ConstantMixing

    assert (ALiBi, SlidingWindow) == (posbias.ALiBi, posbias.SlidingWindow)
    assert (ConstantMixing, rotary_of) == (posbias.ConstantMixing, posbias.encodings.rotary_of)


def test_several_lengths_and_a_query_in_between(answered):
    profile = posbias.predict(posbias.preset("bloom-560m"), tokens=50, query=19)
    np.testing.assert_allclose(
        profile.mass[:20], posbias.predict(posbias.preset("bloom-560m"), tokens=20).mass, rtol=1e-12
    )
    assert not profile.mass[20:].any()
    several = answered("predict", "bloom-560m", "--tokens", "64,1k")
    assert [row["tokens"] for row in several["predictions"]] == [64, 1000]


def test_mixing_published_trained_initial_and_measured(answered, measured):
    first = {
        word: answered("predict", "bloom-560m", "--tokens", 64, "--mixing", word)["profile"][0]
        for word in ("bloom-176b", "trained_median", "init", str(measured))
    }
    assert len(set(first.values())) == 4
    assert not answered("predict", "bloom-176b", "--tokens", 64, "--mixing", "published")["left_out"]


def test_mixing_at_initialisation_is_no_pretrained_models_and_is_said_layer_by_layer(answered, folder):
    (folder / "six.toml").write_text("depth = 6\n[[layers]]\nheads = 2\n")
    answer = answered("predict", "six.toml", "--tokens", 40, "--mixing", "init")
    np.testing.assert_allclose(answer["mixing"], 1 / (1 + np.sqrt(1 + 2 * np.arange(6))), rtol=1e-12)
    assert (answer["band"], answer["left_out"], answer["summary"]["verdict"]) == (None, [], "U")
    assert "at initialisation" in answer["assumptions"][0]
    asked = "predict", "six.toml", "--tokens", 40, "--mixing", "init"
    assert "λ by layer, bottom first: 0.5 0.366 0.309 0.274 0.25 0.232" in called(*asked, "-v").stderr
    assert "λ by layer" not in called(*asked).stderr


def test_a_band_over_known_mixings_and_a_verdict_only_if_all_agree(answered):
    answer = answered("predict", "bloom-560m", "--tokens", 64)
    low, high = np.array(answer["band"]["low"]), np.array(answer["band"]["high"])
    assert (low <= high).all()
    assert len(answer["band"]["verdicts"]) == 8
    assert (answer["summary"]["verdict"] is None) == (len({*answer["band"]["verdicts"].values()}) > 1)


@pytest.mark.parametrize("given", [("bloom-7b1", "bloom-7b1"), ("bloom-7b1", "--tokens", "64,64")])
def test_an_architecture_is_not_compared_with_itself(given):
    ended = called("predict", *given)
    assert (ended.returncode, ended.stderr.strip()[-35:]) == (2, "at each length, got bloom-7b1 twice")


def test_which_of_two_keeps_the_middle_under_which_mixing_and_at_what_cost(answered, folder):
    layer = "{heads = 4, groups = 2, cached = 256, positional = {kind = 'alibi', slopes = [0.02]}"
    (folder / "full.toml").write_text(f"depth = 4\nlayers = [{layer}}}]\n")
    near = layer + ", mask = {kind = 'sliding_window', width = 16}}"
    (folder / "near.toml").write_text(f"depth = 4\nlayers = [{near}, {near}, {layer}}}]\n")
    answer = answered("predict", "near.toml", "full.toml", "--tokens", 200, "--cache-dtype", "int8")
    names = [one["name"] for one in answer["predictions"]]
    read = {name: posbias.load_architecture(folder / f"{name}.toml") for name in names}
    found, middle = answer["decision"], {}
    for of, shares in found["shares"].items():
        mixing = {} if of == "trained_median" else {"mixing": plausible_mixing(4)[of]}
        masses = [posbias.influence(replace(read[name], **mixing), 200).mass for name in names]
        expected = [[one[:10].sum(), one[50:150].sum(), one[190:].sum()] for one in masses]
        np.testing.assert_allclose(np.array(shares)[:, :3], expected, rtol=1e-9)
        middle[of] = dict(zip(names, np.array(shares)[:, 1], strict=True))
    keeper = found["keeper"]
    [other] = {*names} - {keeper}
    assert sum(one[keeper] > one[other] for one in middle.values()) > len(middle) / 2 == 4
    assert found["leads"] == {of: pytest.approx(one[keeper] - one[other]) for of, one in middle.items()}
    keys = {"full": 2 * 4 * 200, "near": 2 * (3 * 16 + 200)}
    costs = {one["name"]: (one["cache"]["read"], one["cache"]["size"]) for one in answer["predictions"]}
    assert costs == {name: (count, 256 * count) for name, count in keys.items()}
    caches = {name: posbias.cache_of(read[name], 200, "int8") for name in names}
    decision = posbias.decide({name: posbias.predict(read[name], 200) for name in names}, caches)
    assert (decision.said, decision.leads) == (found["said"], found["leads"])


def test_of_two_that_are_alike_none_keeps_more():
    alike = posbias.predict("bloom-560m", 64)
    said = posbias.decide({"one": alike, "other": alike}, {}).said
    assert said.startswith("none of one, other keeps more of the middle half")


def test_a_cache_has_the_size_that_is_published():
    """Llama 3 8B: 128 KiB a token in bfloat16, 16 GiB at 131,072; DeepSeek V3: about 70 KB a token."""
    assert posbias.cache_of(posbias.preset("llama-3-8b"), 131_072).size == 16 * 2**30
    latent = {
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
    }
    assert posbias.cache_of(from_huggingface({"model_type": "deepseek_v3", **latent}), 1).size == 70_272
    assert posbias.cache_of(posbias.Architecture(2), 8).size is None


def test_vary_one_and_two(answered, folder):
    one = answered("predict", "bloom-560m", "--tokens", 32, "--vary", "depth=2,8,24")
    assert one["values"] == [2, 8, 24]
    two = answered("predict", "bloom-560m", "--tokens", 32, "--vary", "depth=2,8", "--vary", "window=8,16,32")
    assert [len(row) for row in two["summaries"]] == [3, 3]
    scaled = 'positional = {kind = "rope", amplitudes = [2.0], dimension = 2, '
    (folder / "rope.toml").write_text(f"{CAUSAL}{scaled}scaling = {{kind = 'linear_scaling', factor = 2}}}}")
    rotary = answered("predict", "rope.toml", "--tokens", 32, "--vary", "rope_factor=2,4")
    assert [line.partition(",")[0] for line in rotary["measured"]] == ["smollm2-135m", "gemma-3-270m"]
    assert one["measured"] == []


def test_the_trajectory_over_depth():
    architecture = posbias.Architecture(3, mixing=posbias.ConstantMixing(0.5))
    profiles = posbias.trajectory(architecture, 16)
    for depth, profile in enumerate(profiles[1:], 1):
        np.testing.assert_allclose(profile.mass, even(np.tri(16), depth, 0.5), rtol=1e-12)


def line(value, distance):
    return -value * distance


CRITICAL = {
    "decay": ('{kind = "decay", rate = 0.4}', (0.3, 0.7), line, line),
    "rope_angle": (
        '{kind = "rope", amplitudes = [20.0], frequencies = [0.05]}',
        (0.03, 0.08),
        lambda angle, distance: 20.0 * np.cos(angle * distance),
        lambda angle, distance: -10.0 * (angle * distance) ** 2,  # a/2 for c
    ),
}
"""By quantity: the encoding, two values, its logits by distance, and what the envelope of walks takes for them."""


@pytest.mark.parametrize("quantity", CRITICAL)
def test_the_critical_distance_is_that_of_walks_and_of_dense_kernels(quantity, answered, folder):
    """Wu et al. 2025, Theorems 4.5 and 4.7: a quotient for a decay, the root of an equation for a pair."""
    encoding, values, logits, envelope = CRITICAL[quantity]
    spec = f'depth = 5\nmixing = {{kind = "attention_only"}}\n[[layers]]\npositional = {encoding}'
    (folder / "spec.toml").write_text(spec)
    varied, away = f"{quantity}={values[0]},{values[1]}", np.arange(90)
    words = ("predict", "spec.toml", "--critical-distance", "--tokens", 90, "--vary", varied)
    for curve, value in zip(answered(*words)["curves"], values, strict=True):
        assert curve["depth"] == [1, 2, 3, 4, 5]
        kernel = np.tril(np.exp(logits(value, np.abs(np.subtract.outer(away, away)))))
        kernel /= kernel.sum(axis=1, keepdims=True)
        for layers, x in enumerate(curve["predicted"]):  # below the last
            if quantity == "decay":
                assert x == pytest.approx(layers / math.expm1(value))
            elif layers:
                assert math.log(1 + layers / x) == pytest.approx(20.0 * value**2 * x)
            walks = comb(layers + away, away) * np.exp(envelope(value, away))
            assert curve["modal"][layers] == walks.argmax()
            rows = last_row([kernel] * (layers + 1), [1.0] * (layers + 1))
            assert curve["rollout"][layers] == rows[:0:-1].argmax()


def test_a_measured_model_at_a_longer_length(answered):
    answer = answered(
        "predict", "smollm2-135m", "--tokens", 512, "--calibrate", "smollm2-135m", "--rule", "both"
    )
    assert len(answer["profile"]) == 512
    assert sum(answer["profile"]) == pytest.approx(1.0, abs=1e-9)


def test_an_own_mask(folder):
    seen = np.tri(12, dtype=bool)
    seen[:, 1] = np.arange(12) == 1
    layer = posbias.Layer(mask=posbias.CustomMask(seen))
    profile = posbias.predict(posbias.Architecture(3, (layer,), posbias.ConstantMixing(0.4)), tokens=12)
    np.testing.assert_allclose(profile.mass, even(seen * 1.0, 3, 0.4), rtol=1e-12)


def test_an_own_encoding():
    table = posbias.Tabulated((0.0, -1.0, -4.0))
    profile = posbias.predict(
        posbias.Architecture(1, (posbias.Layer(positional=table),), posbias.AttentionOnly()), tokens=3
    )
    weights = np.exp([-4.0, -1.0, 0.0])
    np.testing.assert_allclose(profile.mass, weights / weights.sum(), rtol=1e-12)


def test_own_arrays_of_attention():
    random = np.random.default_rng(0)
    attention = np.tril(random.random((4, 2, 10, 10)))
    attention /= attention.sum(axis=-1, keepdims=True)
    own = posbias.Attention.from_arrays(attention)
    np.testing.assert_allclose(own.rollout(0.5).mass, last_row(attention.mean(axis=1), [0.5] * 4), rtol=1e-12)


def test_attention_that_another_tool_saved():
    """`tests/adapters` has TransformerLens and nnsight, in an environment of their own."""
    pattern = np.tril(np.ones((1, 2, 4, 4))) / np.arange(1, 5)[:, None]
    cache = {
        f"blocks.{layer}.attn.hook_{name}": pattern - (name == "q")
        for layer in (1, 0)
        for name in ("q", "pattern")
    }
    saved = posbias.Attention.from_arrays(cache)
    np.testing.assert_allclose(saved.rollout(1).mass, np.array([25, 13, 7, 3]) / 48, rtol=1e-12)


def test_a_family_from_an_entry_point(folder, monkeypatch):
    module = (
        "import posbias\nfrom posbias.core.packages import ModelFamily\n"
        "OWN = ModelFamily(lambda config: posbias.Architecture(config['deep']))\n"
    )
    install(folder, "own-family", module, {"owned": "OWN"})
    monkeypatch.syspath_prepend(folder)
    (folder / "config.json").write_text('{"model_type": "owned", "deep": 3}')
    assert posbias.load_architecture("config.json").depth == 3


def test_a_million_tokens_exactly():
    """Causal layers alone: the profile of one layer is even, whatever the length."""
    profile = posbias.predict(posbias.Architecture(1, mixing=posbias.ConstantMixing(0.5)), tokens=1_000_000)
    assert profile.mass[0] == pytest.approx(0.5e-6, rel=1e-12)
    assert math.fsum(profile.mass) == pytest.approx(1.0, abs=1e-12)


def test_a_closed_form_beside_the_sweep():
    rollout = posbias.rollout(posbias.Architecture(2, mixing=posbias.AttentionOnly()), 8)
    uniform = np.tri(8) / np.arange(1, 9)[:, None]
    np.testing.assert_allclose(rollout, uniform @ uniform, rtol=1e-12)
