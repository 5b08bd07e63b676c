"""What a prediction says where something that decides it is not known."""

import json
from dataclasses import replace

import numpy as np
import pytest
from command import called
from hypothesis import given
from hypothesis import strategies as st
from measured import DEPTH, TOKENS, measurement

import posbias
from posbias.cli.terminal import describe
from posbias.comparison.extrapolation import BUNDLED
from posbias.core.errors import InvalidValueError
from posbias.core.formats import undamaged
from posbias.profiles.measurements import save_measurement
from posbias.reports.answers.predictions import Profile as ProfilePart
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.configs import PRESETS, load_architecture, preset
from posbias.theory.encodings import ALiBi, NeedsMeasurement
from posbias.theory.huggingface import from_huggingface
from posbias.theory.mixing import (
    REACH,
    ConstantMixing,
    MeasuredMixing,
    PreNormInit,
    TrainedMedian,
    known_mixing,
    plausible_mixing,
)
from posbias.theory.prediction import flattest_under, predict, said_under
from posbias.theory.rollout.dispatch import influence, trajectory
from posbias.theory.variation import vary

TINY_MODELS = ("tiny-alibi", "tiny-learned", "tiny-nope", "tiny-rope", "tiny-window")
PRETRAINED = {"bloom-176b", "bloom-7b1", "mpt-7b", "mpt-30b", "falcon-rw-7b", "smollm2-135m"}


def answered(*words):
    done = called("predict", *words, "--json")
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


# ── λ that is known ──


def test_known_mixing_has_a_coefficient_for_every_layer_and_says_where_from():
    assert {*known_mixing()} == PRETRAINED | set(TINY_MODELS)
    for name, mixing in known_mixing().items():
        depth = PRESETS[name].depth if name in PRESETS else answered(name)["architecture"]["depth"]
        assert len(mixing.coefficients) == depth
        assert mixing.tokens
        assert mixing.text
        assert mixing.source
        assert name in TINY_MODELS or preset(name).mixing == mixing


def test_a_model_that_comes_along_is_predicted_by_its_name():
    answer = answered("tiny-alibi")
    assert answer["summary"]["verdict"] == "recency"
    assert answer["architecture"]["mixing"]["text"] == "sotu"
    assert answered("tiny-rope")["left_out"] == ["rotary positions"]


def test_published_mixing_gives_the_u_of_the_papers_figure():
    """BLOOM-176B at 256 tokens; with λ at initialisation it would be primacy."""
    answer = answered("bloom-176b", "--tokens", "256")
    assert answer["summary"]["verdict"] == "U"
    assert (answer["left_out"], answer["profile_is"]) == ([], "")
    at_first = answered("bloom-176b", "--tokens", "256", "--mixing", "init")
    assert at_first["profile"][0] > 3 * answer["profile"][0]
    assert at_first["summary"]["verdict"] is None


@pytest.mark.parametrize(("tokens", "known"), [(256, True), (512, True), (513, False), (64, True)])
def test_measured_mixing_reaches_twice_its_length(tokens, known):
    architecture = preset("bloom-7b1")
    assert architecture.mixing.tokens * REACH == 512
    profile = influence(architecture, tokens)
    assert (profile.summary.verdict is not None) == known
    assert known or profile.left_out == ("λ at 513 tokens (measured at 256)",)
    said = [line for line in profile.attrs["assumptions"] if "extrapolated" in line]
    assert len(said) == (tokens != 256)
    assert all((one.summary.verdict is not None) == known for one in trajectory(architecture, tokens)[::10])


def test_measured_mixing_stays_measured_at_another_depth():
    variants = vary(preset("bloom-7b1"), "depth", [10, 30], 1000)
    assert [one.summary.verdict for _, one in variants] == [None, None]
    assert [one.summary.verdict for _, one in vary(preset("bloom-7b1"), "depth", [30], 256)] == ["U"]


def test_mixing_can_be_published_measured_or_another_files(tmp_path):
    answer = answered("bloom-7b1", "--mixing", "published")
    assert answer["architecture"]["mixing"]["tokens"] == 256
    found = measurement(text="some text")
    save_measurement(found, tmp_path / "m.nc")
    (tmp_path / "a.toml").write_text(f'depth = {DEPTH}\n[mixing]\nkind = "constant"\nvalue = 0.3\n')
    answer = answered(str(tmp_path / "a.toml"), "--mixing", str(tmp_path / "m.nc"))
    assert answer["architecture"]["mixing"]["coefficients"] == found["mixing"].values.mean(0).tolist()
    assert (answer["architecture"]["mixing"]["tokens"], answer["architecture"]["mixing"]["text"]) == (
        TOKENS,
        "some text",
    )
    (tmp_path / "b.toml").write_text("depth = 2\n")
    answer = answered(str(tmp_path / "b.toml"), "--mixing", str(tmp_path / "a.toml"))
    assert answer["architecture"]["mixing"] == {"kind": "constant", "value": 0.3}


@pytest.mark.parametrize("depth", [1, DEPTH, 7])
def test_mixing_of_another_depth_is_taken_at_the_same_relative_depth(tmp_path, depth):
    found = measurement()
    save_measurement(found, tmp_path / "m.nc")
    (tmp_path / "a.toml").write_text(f"depth = {depth}\n")
    values = found["mixing"].values.mean(0)
    expected = [np.interp((t + 0.5) / depth * DEPTH - 0.5, np.arange(DEPTH), values) for t in range(depth)]
    answer = answered(str(tmp_path / "a.toml"), "--mixing", str(tmp_path / "m.nc"))
    assert answer["architecture"]["mixing"]["coefficients"] == pytest.approx(expected)
    said = f"mixing: λ of m.nc ({DEPTH} layers) at the same relative depth of {depth} layers"
    assert answer["assumptions"].count(said) == (depth != DEPTH)


def test_mixing_of_another_model_is_had_by_its_name(tmp_path):
    (tmp_path / "a.toml").write_text("depth = 12\n")
    answer = answered(str(tmp_path / "a.toml"), "--mixing", "bloom-176b")
    assert answer["architecture"]["mixing"]["coefficients"] == [
        *plausible_mixing(12)["bloom-176b"].coefficients
    ]
    assert (
        "mixing: λ of bloom-176b (70 layers) at the same relative depth of 12 layers" in answer["assumptions"]
    )
    done = called("predict", str(tmp_path / "a.toml"), "--mixing", "blom-176b")
    assert "did you mean 'bloom-176b'?" in done.stderr


def test_what_is_not_published_is_said():
    done = called("predict", "bloom-3b", "--mixing", "published")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "bloom-3b" in done.stderr
    with pytest.raises(InvalidValueError, match=r"mixing: .*30 coefficients"):
        Architecture(2, mixing=known_mixing()["smollm2-135m"])


def test_learned_positions_end_where_the_model_has_no_more():
    assert preset("gpt2").left_out(1024) == ("learned positions", "λ")
    beyond = "(the model has 1,024, 1,025 asked)"
    assert preset("gpt2").left_out(1025) == (f"learned positions {beyond}", "λ")
    assert answered("tiny-learned", "--tokens", "257")["left_out"] == [
        "learned positions (the model has 256, 257 asked)"
    ]
    assert from_huggingface(GPT2).left_out(10**6) == ("learned positions", "λ")
    left_out = from_huggingface(GPT2 | {"n_positions": 64}).left_out(65)
    assert left_out == ("learned positions (the model has 64, 65 asked)", "λ")
    with pytest.raises(InvalidValueError, match="max_position_embeddings: "):
        from_huggingface(GPT2 | {"n_positions": 0})


GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 2}


def test_long_work_tells_of_every_layer_and_short_work_of_nothing():
    layer = Layer(mask=posbias.CustomMask(lambda query, key: (key <= query) & (query - key < 4)))
    slow = Architecture(3, (layer,), ConstantMixing(0.3))
    heard = []
    predict(slow, 2049, on_event=heard.append)
    assert [(one.done, one.total, one.unit) for one in heard] == [(done, 3, "layers") for done in range(4)]
    heard.clear()
    predict(slow, 2048, on_event=heard.append)
    predict(preset("bloom-7b1"), 4096, on_event=heard.append)
    assert not heard


# ── λ that is not ──


PUBLISHED = ("bloom-176b", "bloom-7b1", "mpt-7b", "mpt-30b", "falcon-rw-7b")


@pytest.mark.parametrize("depth", [1, 2, 24, 30, 70, 126])
def test_the_default_is_the_median_of_the_models_of_one_definition(depth):
    """Layer t of `depth` lies (t + ½)/depth up each of the five published models; the middle of their five λ."""
    expected = []
    for t in range(depth):
        each = []
        for name in PUBLISHED:
            known = known_mixing()[name].coefficients
            place = (t + 0.5) / depth * len(known) - 0.5
            low = min(max(int(np.floor(place)), 0), len(known) - 1)
            high, share = min(low + 1, len(known) - 1), min(max(place - low, 0.0), 1.0)
            each.append(known[low] + share * (known[high] - known[low]))
        expected.append(sorted(each)[2])
    assert Architecture(depth).coefficients == pytest.approx(expected, rel=1e-12)


def test_models_without_a_known_mixing_have_that_of_trained_ones(tmp_path):
    (tmp_path / "a.toml").write_text("depth = 2\n")
    (tmp_path / "old.toml").write_text('depth = 2\n[mixing]\nkind = "at_initialisation"\n')
    given = [
        preset("gemma-3-27b"),
        preset("qwen3-8b"),
        from_huggingface(GPT2),
        Architecture.pattern(4, local=1, window=8),
    ]
    assert {one.mixing for one in (*given, load_architecture(tmp_path / "a.toml"))} == {TrainedMedian()}
    assert load_architecture(tmp_path / "old.toml").mixing == PreNormInit()
    for words, kind in ([], "trained_median"), (["--mixing", "init"], "at_initialisation"):
        assert answered("bloom-560m", "--tokens", "40", *words)["architecture"]["mixing"] == {"kind": kind}
    (said,) = answered("bloom-560m", "--tokens", "40")["assumptions"]
    assert all(name in said for name in PUBLISHED)
    assert "smollm2-135m" not in said


def test_plausible_mixing_is_that_of_models_at_the_same_relative_depth():
    for depth in (1, 7, 30, 200):
        found = plausible_mixing(depth)
        assert {*found} == PRETRAINED
        for name, mixing in found.items():
            known = known_mixing()[name].coefficients
            assert min(known) <= min(mixing.coefficients) <= max(mixing.coefficients) <= max(known)
    assert plausible_mixing(30)["bloom-7b1"].coefficients == pytest.approx(
        known_mixing()["bloom-7b1"].coefficients
    )


@given(tokens=st.integers(3, 80), heads=st.integers(1, 4), depth=st.integers(1, 8))
def test_a_band_is_what_each_known_mixing_would_give(tokens, heads, depth):
    """Profile by profile the rollout with that λ; a verdict only where all of them and the profile share it."""
    architecture = Architecture(depth, (Layer(heads=heads, positional=ALiBi()),))
    profile = predict(architecture, tokens)
    band = profile.attrs["band"]
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


def test_both_kinds_of_answer_occur_and_say_under_how_many():
    steep = predict(Architecture(6, (Layer(positional=ALiBi(slopes=(2.0,))),)), 200)
    assert describe(steep)[1] == "verdict: recency under 7 of 7 known λ"
    open_ = predict(Architecture(24, (Layer(heads=16, positional=ALiBi()),)), 256)
    assert open_.summary.verdict is None
    verdict, under = open_.attrs["band"].verdict
    assert (verdict, [name for name in under if not under[name]]) == ("U", ["bloom-176b", "smollm2-135m"])
    assert describe(open_)[0].startswith(
        "no verdict: U under 5 of 7 known λ (not under bloom-176b, smollm2-135m)"
    )


def test_two_layouts_are_ordered_under_each_known_mixing():
    """Windows on three of four layers against all layers global, 32 windows long."""
    windows, full = Architecture.pattern(48, local=3, window=32), Architecture(48)
    one, other = predict(windows, 1024), predict(full, 1024)
    each = [
        [influence(replace(layout, mixing=mixing), 1024).summary.flatness for layout in (windows, full)]
        for mixing in (TrainedMedian(), *plausible_mixing(48).values())
    ]
    under = flattest_under(one, [other])
    assert list(under.values()) == [a > b for a, b in each]
    assert said_under(under) == "6 of 7 known λ (not under bloom-176b)"
    given = [replace(layout, mixing=ConstantMixing(0.1)) for layout in (windows, full)]
    assert flattest_under(*(predict(given[0], 64), [predict(given[1], 64)])) == {}
    orders = answered("bloom-560m", "bloom-176b", "--tokens", "128")["orders"]
    assert [len(one["under"]) for one in orders] == [7]
    ended = called("predict", "bloom-560m", "--tokens", "128", "--vary", "depth=2,24")
    assert "the flattest under 7 of 7 known λ" in ended.stdout


def test_beyond_their_length_known_mixings_are_counted_and_give_no_verdict():
    long = predict(Architecture(6, (Layer(positional=ALiBi(slopes=(2.0,))),)), 4096)
    assert long.left_out == ("λ at 4,096 tokens (measured at 256)",)
    assert "as computed recency under 7 of 7 known λ" in describe(long)[0]


def test_beyond_the_length_at_which_models_were_measured_there_is_no_verdict():
    steep = Architecture(6, (Layer(positional=ALiBi(slopes=(2.0,))),))
    assert predict(steep, 512).summary.verdict == "recency"
    assert predict(steep, 513).summary.verdict is None


def test_given_mixing_has_a_verdict_and_no_band():
    profile = predict(Architecture(6, mixing=ConstantMixing(0.2)), 40)
    assert profile.summary.verdict == "U"
    assert "band" not in profile.attrs
    assert ProfilePart.of(profile).band is None


# ── encodings that are not known ──


def test_the_first_line_says_what_is_left_out_and_what_settles_it():
    layer = Layer(heads=2, positional=NeedsMeasurement("rotary"))
    first, *others = describe(predict(Architecture(4, (layer,)), 64))
    assert first.startswith("no verdict: rotary positions and λ not known")
    assert "--calibrate FILE.nc" in first
    assert any("with λ of each of 5 pretrained models" in line for line in others)
    assert not any("verdict" in line for line in others)


@pytest.mark.parametrize(
    ("family", "measured"), [("jamba", False), ("lfm2", False), ("falcon_h1", True), ("llama", True)]
)
def test_a_measurement_is_advised_only_where_the_model_can_be_measured(family, measured):
    sizes = {"num_hidden_layers": 8, "num_attention_heads": 4, "max_position_embeddings": 4096}
    more = {
        "jamba": {"attn_layer_period": 8, "attn_layer_offset": 4},
        "lfm2": {"full_attn_idxs": [2, 5], "conv_L_cache": 3},
    }
    read = from_huggingface({"model_type": family, **sizes, **more.get(family, {})})
    first, *_ = describe(predict(read, 64))
    assert ("--calibrate FILE.nc" in first) == measured
    assert first.endswith("such layers cannot be measured, the gradient influence alone can") != measured


def test_no_rotary_preset_has_a_verdict_whatever_its_mixing():
    for words in ([], ["--mixing", "0.2"], ["--mixing", "init"]):
        answer = answered("smollm2-135m", "--tokens", "64", *words)
        assert answer["summary"]["verdict"] is None
        assert "rotary positions" in answer["left_out"]
        assert answer["profile_is"].startswith("mask and residual only")


def test_a_measurement_settles_what_no_configuration_holds(tmp_path):
    first, *_ = describe(predict(posbias.preset("smollm2-135m"), 64))
    assert "--calibrate smollm2-135m" in first
    answer = answered(
        "smollm2-135m", "--calibrate", "smollm2-135m", "--tokens", "1k", "-o", str(tmp_path / "p.json")
    )
    assert (answer["tokens"], answer["summary"]["verdict"], answer["left_out"]) == (1000, "U", [])
    about = answer["calibration"]
    assert (about["model"], about["tokens"], about["rule"]) == ("smollm2-135m", 512, "both")
    assert (about["trial"]["measured"], about["trial"]["tokens"]) == (512, 1024)
    assert posbias.load_profile(tmp_path / "p.json").summary.verdict == "U"
    bare = answered("smollm2-135m", "--calibrate", "smollm2-135m")
    assert bare["tokens"] == 512
    np.testing.assert_allclose(
        bare["profile"], posbias.measured_influence(posbias.load_measurement(BUNDLED)).mass
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rule", "both"], "rule"),
        (["--calibrate", "smollm2-135m", "--mixing", "0.2"], "mixing"),
        (["--calibrate", "smollm2-135m", "--vary", "depth=1:4"], "vary"),
        (["--calibrate", "smollm2-135m", "--query", "3"], "query"),
        (["--calibrate", "nothing.nc"], "nothing.nc"),
        (["--calibrate", "p.json"], "calibrate"),
    ],
)
def test_options_that_do_not_go_with_a_calibration_are_refused(words, said):
    ended = called("predict", "smollm2-135m", *words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_the_band_is_drawn_and_written(tmp_path):
    from posbias.reports.plots import draw_profile, new_figure

    profile = posbias.predict(Architecture(24, (Layer(heads=16, positional=ALiBi()),)), 256)
    axes = draw_profile(new_figure().subplots(), profile)
    (band,) = axes.collections[:1]
    drawn = band.get_paths()[0].vertices[:, 1]
    assert drawn.max() == pytest.approx(profile.attrs["band"].high.max() * 256)
    assert "λ not known" in axes.get_title()
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["with λ of 5 pretrained models"]
    answer = answered("bloom-560m", "--tokens", "40", "-o", str(tmp_path / "p.json"))
    assert answer == undamaged(json.loads((tmp_path / "p.json").read_text()), "p.json")
    assert len(answer["band"]["low"]) == 40
    assert {*answer["band"]["verdicts"]} == PRETRAINED | {"trained_median"}
    assert (tuple(answer["band"]["models"]), answer["band"]["checks"]) == (PUBLISHED, ["smollm2-135m"])


def test_what_is_left_out_follows_the_profile_into_a_comparison(tmp_path):
    save_measurement(measurement(), tmp_path / "m.nc")
    answered("tiny-rope", "--tokens", str(TOKENS), "-o", str(tmp_path / "rope.json"))
    answered("tiny-alibi", "--tokens", str(TOKENS), "-o", str(tmp_path / "alibi.json"))
    done = called("compare", tmp_path / "rope.json", tmp_path / "m.nc")
    note = "rope.json: rotary positions not known, this is mask and residual only"
    assert done.stdout.startswith(note)
    assert "not known" not in called("compare", tmp_path / "alibi.json", tmp_path / "m.nc").stdout
    read = called("compare", tmp_path / "rope.json", tmp_path / "m.nc", "--json")
    assert json.loads(read.stdout)["left_out"] == ["rotary positions"]


# ── names ──


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("llama-3.1-8b", "llama-3.1-8b: no such file and no preset; did you mean 'llama-3-8b'?"),
        ("meta-llama/Llama-3.1-8B", "no such file and no preset; did you mean 'llama-3-8b'?"),
        ("tiny-rop", "no such file and no preset; did you mean 'tiny-rope'?"),
        ("zz/qqqq", "no such file and no preset, its config.json (or the folder of it) needed"),
        ("nowhere.toml", "nowhere.toml: no such file"),
    ],
)
def test_an_unknown_name_gets_the_right_hint(given, words, tmp_path):
    done = called("predict", given, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(words)


def test_a_name_of_the_hub_is_the_preset():
    for name in ("bigscience/bloom-7b1", "BigScience/BLOOM-7B1"):
        assert answered(name)["architecture"] == answered("bloom-7b1")["architecture"]


# ── several at once ──


def test_several_predictions_are_a_table_with_the_flattest_first(tmp_path):
    ended = called(
        "predict", "tiny-alibi", "bloom-176b", "--tokens", "64,256", "--plot", tmp_path / "all.svg"
    )
    assert ended.returncode == 0
    head, *rows = ended.stdout.splitlines()[:5]
    assert head.split() == ["profile", "verdict", "first", "5", "%", "last", "5", "%", "trough", "flatness"]
    flatness = [float(row.split()[-1]) for row in rows]
    assert flatness == sorted(flatness, reverse=True)
    assert sum("bloom-176b, 256 tokens" in row for row in rows) == 1
    assert "bloom-176b, 64 tokens" in (tmp_path / "all.svg").read_text()


def test_several_predictions_are_each_as_alone():
    answer = answered("tiny-alibi", "bloom-176b", "--tokens", "64,256")
    assert answer["schema"] == "predict-several/1"
    assert len(answer["predictions"]) == 4
    for one in answer["predictions"]:
        alone = answered(one["name"], "--tokens", str(one["tokens"]))
        assert {key: value for key, value in one.items() if key != "name"} == {
            key: value for key, value in alone.items() if key != "schema"
        }


def test_one_measurement_is_continued_to_several_lengths():
    answer = answered("smollm2-135m", "--calibrate", "smollm2-135m", "--tokens", "512,1k,100k")
    assert {one["tokens"]: one["summary"]["verdict"] for one in answer["predictions"]} == {
        512: "U",
        1000: "U",
        100_000: None,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tokens", "8k,x"], "--tokens"),
        (["--tokens", "64,128", "--vary", "depth=1:4"], "vary"),
    ],
)
def test_what_several_predictions_cannot_be_is_refused(words, said):
    ended = called("predict", "tiny-alibi", *words)
    assert ended.returncode == 2
    assert said in ended.stderr
