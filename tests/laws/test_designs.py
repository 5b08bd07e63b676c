"""Designs: the front against its definition, the search against all of a space, each number against `predict`."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from answers import plain
from heard import Heard
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from posbias.core.errors import InputFileError
from posbias.designs import design
from posbias.designs.space import on_front, target_of, toml_of
from posbias.profiles.profile import Profile, uniform
from posbias.theory.architecture import Architecture, Layer
from posbias.theory.cache import cache_of
from posbias.theory.configs import load_architecture, read_architecture
from posbias.theory.masks import BlockSparse, Causal, Chunked, Dilated, Full, Prefix, SlidingWindow
from posbias.theory.mixing import ConstantMixing, TrainedMedian, plausible_mixing
from posbias.theory.positional import ALiBi
from posbias.theory.prediction import predict
from posbias.theory.rollout.dispatch import influence

TOKENS = 96
BASE = Architecture(6, (Layer(heads=2, positional=ALiBi()),), ConstantMixing(0.3))
VARIED = {
    "window": [4, 8, 16, 32],
    "full_period": [1, 2, 3],
    "slopes": [0.05, 0.2, 1.0],
    "mixing": [0.2, 0.5],
}


def beaten(costs: np.ndarray, row: int) -> bool:
    """Whether another row dominates this one, or an earlier one is equal, from the definition alone."""
    for other, values in enumerate(costs):
        no_worse = all(a <= b for a, b in zip(values, costs[row], strict=True))
        better = any(a < b for a, b in zip(values, costs[row], strict=True))
        if no_worse and (better or other < row):
            return True
    return False


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=40))
def test_the_front_is_what_nothing_dominates(rows):
    costs = np.array(rows, dtype=np.float64).reshape(-1, 3)
    assert on_front(costs).tolist() == [not beaten(costs, row) for row in range(len(costs))]


def everything(varied=VARIED):
    """Every architecture of the space by nested loops: its profile and keys in the cache."""
    names = list(varied)
    for values in itertools.product(*varied.values()):
        point = dict(zip(names, values, strict=True))
        near = SlidingWindow(point["window"])
        layers = [
            Layer(2, Causal() if (t + 1) % point["full_period"] == 0 else near, ALiBi(scale=point["slopes"]))
            for t in range(6)
        ]
        profile = predict(Architecture(6, tuple(layers), ConstantMixing(point["mixing"])), TOKENS)
        keys = sum(2 * (TOKENS if layer.mask == Causal() else point["window"]) for layer in layers)
        yield profile, keys


def test_a_small_space_is_searched_whole():
    space = [(profile, keys, -profile.summary.effective_range) for profile, keys in everything()]
    for target in ("flat", "middle=0.7", "reach=90"):
        wanted = target_of(target, TOKENS)
        costs = np.array([(wanted.distance(profile), *others) for profile, *others in space])
        found = design(BASE, VARIED, tokens=TOKENS, target=target)
        front = {tuple(costs[row]) for row in range(len(costs)) if not beaten(costs, row)}
        assert found.exhaustive
        assert {(one.distance, one.cache, -one.reach) for one in found.front} == front
        assert [one.distance for one in found.front] == sorted(one.distance for one in found.front)


def test_an_interrupted_search_goes_on_to_the_same_end(tmp_path):
    job, kept = {"tokens": 24, "evaluations": 40, "seed": 1}, tmp_path / "kept.npz"
    whole = design(BASE, VARIED, **job)
    with pytest.raises(KeyboardInterrupt):
        design(BASE, VARIED, kept=kept, on_event=Heard(stop=32), **job)
    assert kept.stat().st_size > 500
    assert plain(design(BASE, VARIED, kept=kept, **job)) == plain(whole)
    kept.write_bytes(kept.read_bytes()[:300])
    assert plain(design(BASE, VARIED, kept=kept, threads=3, **job)) == plain(whole)
    assert design(BASE, VARIED, **job | {"seed": 2}).fingerprint != whole.fingerprint


def test_without_a_mixing_the_order_is_counted_over_all_known_ones():
    base = Architecture(6, (Layer(heads=2, positional=ALiBi(scale=0.1)),))
    found = design(base, {"window": [8, 64], "full_period": [2]}, tokens=TOKENS)
    wanted = target_of("flat", TOKENS)
    schedules = {"trained_median": TrainedMedian(), **plausible_mixing(6)}
    near = {
        name: wanted.distance(influence(replace(base, mixing=one), TOKENS)) for name, one in schedules.items()
    }
    assert found.baseline.under == near
    for one in found.front:
        far = {
            name: wanted.distance(influence(replace(one.architecture, mixing=mixing), TOKENS))
            for name, mixing in schedules.items()
        }
        assert one.under == far
        assert one.distance == max(far.values())
        assert found.nearer(one) == {name: far[name] < near[name] for name in far}


@pytest.mark.parametrize(
    ("mask", "keys"),
    [
        (Causal(), 50),
        (SlidingWindow(7), 7),
        (SlidingWindow(7, 2), 9),
        (Chunked(20), 20),
        (Dilated(4, 3), 9),
        (Prefix(5), 50),
        (Full(), 50),
        (BlockSparse(4), 4),
    ],
    ids=repr,
)
def test_a_cache_holds_what_later_tokens_may_see(mask, keys):
    assert cache_of(Architecture(3, (Layer(heads=4, mask=mask, groups=2),)), 50).keys == 3 * 2 * keys
    cache = cache_of(Architecture(1, (Layer(heads=4, mask=mask, cached=96),)), 50, "int4")
    assert (cache.keys, cache.size) == (4 * keys, 4 * keys * 96 / 2)
    assert cache.read == 4 * mask.allowed(50)[-1].sum()


@given(st.sampled_from([Causal(), SlidingWindow(5, 1), Chunked(9), Dilated(3)]), st.floats(0, 1), st.text())
def test_a_written_architecture_reads_as_itself(tmp_path_factory, mask, mixing, name):
    architecture = Architecture(
        5, (Layer(3, mask, ALiBi((0.1, 1e-30, mixing))), Layer(2)), ConstantMixing(mixing), name, ("a\nb",)
    )
    file = tmp_path_factory.mktemp("toml") / "architecture.toml"
    file.write_text(toml_of(architecture, ("of\ntwo lines",)), encoding="utf-8")
    assert load_architecture(file) == architecture
    file.write_text(toml_of(architecture, tokens=4096), encoding="utf-8")
    assert read_architecture(file).tokens == 4096


def test_a_part_of_a_space_leads_near_the_best_of_the_whole():
    """None of 240 architectures is nearer than the nearest found by more than .002 of the text."""
    varied = {
        "window": [2, 3, 4, 8, 12, 16, 32, 48],
        "full_period": [1, 2, 3],
        "slopes": [0.01, 0.03, 0.1, 0.3, 1.0],
        "mixing": [0.1, 0.6],
    }
    wanted = target_of("flat", TOKENS)
    distances = sorted(wanted.distance(profile) for profile, _ in everything(varied))
    assert distances[3] > distances[0] + 0.002
    for seed in range(2):
        found = design(BASE, varied, tokens=TOKENS, evaluations=100, seed=seed)
        assert (found.exhaustive, found.looked_at) == (False, 100)
        assert distances[0] <= found.front[0].distance <= distances[0] + 0.002


GENTLE = Architecture(6, (Layer(heads=2, positional=ALiBi(scale=0.1)),))


def test_the_verdict_rests_on_what_meets_the_target_under_every_known_mixing():
    def verdict(base, varied, **more):
        return design(base, varied, tokens=TOKENS, **more).verdict

    two = {"window": [4, 8]}
    steep = replace(BASE, layers=(Layer(heads=2, positional=ALiBi((1.0,))),))
    assert verdict(BASE, two, target="middle=0.01") == "no difference"
    assert verdict(BASE, two, within=0.001) == "not met"
    assert verdict(steep, VARIED, target="reach=60") == "met"
    reach = {
        one: influence(replace(GENTLE, mixing=mixing), TOKENS).summary.effective_range
        for one, mixing in {"median": TrainedMedian(), **plausible_mixing(6)}.items()
    }
    wanted = (min(reach.values()), reach["median"], max(reach.values()) + 1)
    found = [verdict(GENTLE, {"slopes": [1]}, target=f"reach={least}") for least in wanted]
    assert found == ["no difference", "not known", "not known"]
    assert verdict(Architecture(4, (Layer(),)), two) == "not known"
    assert verdict(Architecture(4, (Layer(),)), {"mixing": [0.2, 0.4]}, target="middle=0.999") == "not met"
    found = design(BASE, {"window": [8], "full_period": [2], "full_place": [0, 1, 2]}, tokens=TOKENS)
    assert (found.looked_at, found.impossible) == (2, 1)


def test_distances_are_what_they_say_and_curves_of_another_length_are_read_by_share(tmp_path):
    even = uniform(8)
    assert target_of("flat", 8).distance(even) == 0.0
    assert target_of("middle=0.75", 8).distance(even) == pytest.approx(0.25)
    assert target_of("reach=16", 16).distance(even) == pytest.approx(0.5)
    assert target_of("middle=0.5", 8).distance(even) == 0.0
    # all on the first of eight tokens: the mean way to uniform is half of the text
    assert target_of("flat", 8).distance(Profile(np.eye(8)[0])) == pytest.approx(0.5)
    curve, model = tmp_path / "curve.json", tmp_path / "model.toml"
    curve.write_text("[3, 1]")
    assert target_of(str(curve), 8).distance(Profile(np.repeat([0.75, 0.25], 4) / 4)) < 1e-15
    model.write_text(toml_of(BASE))
    assert target_of(str(model), TOKENS).distance(predict(BASE, TOKENS)) == 0.0
    curve.write_text("{}")
    with pytest.raises(InputFileError):
        target_of(str(curve), 8)
    curve.write_text('{"profile": [0.5, 0.7], "measures": "accuracy", "kind": "rate"}')
    refused("target", lambda: target_of(str(curve), 8))


def test_what_cannot_be_is_refused():
    def call(varied=None, **more):
        return lambda: design(BASE, {"window": [4]} if varied is None else varied, tokens=TOKENS, **more)

    refused("vary", call({}), call({"windows": [3]}), call({"tokens": [3]}), call({"window": [3, 3]}))
    refused("vary", call({"window": [8], "full_period": [2], "full_place": [4]}))
    refused("window", call({"window": [0]}))
    for name, wrong in {"evaluations": 0, "seed": -1, "within": 1.0}.items():
        refused(name, call(**{name: wrong}))
    refused("target", *(call(target=wrong) for wrong in ("flatt", "middle=2", "middle=x", "reach=97")))
