"""What every adapter does, without a framework: the places are those of `order`, faults named in a line."""

import sys
from importlib import import_module

import numpy as np
import pytest
from answers import plain
from examples import examples
from frameworks import LAST, SCORES, TEXTS, UNDECIDED
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from posbias.core.errors import MissingPackageError
from posbias.ordering import order, profile_of
from posbias.ordering.adapters import Reordering
from posbias.profiles.profile import Profile

KEPT = [("score", one) for one in SCORES]
documents = st.lists(st.tuples(st.floats(0.01, 1.0), st.text(min_size=1, max_size=9)), min_size=1, max_size=6)


@examples(30)
@given(documents, st.booleans(), st.sampled_from([LAST, UNDECIDED]))
def test_places_are_those_of_order_where_it_helps_or_always(drawn, always, profile):
    scores, texts = [score for score, _ in drawn], [text for _, text in drawn]
    reordering = Reordering(profile=profile, always=always)
    places = reordering.places(texts, texts, [("score", score) for score in scores])
    found = order(len(texts), scores, [float(len(text)) for text in texts], profile=profile, in_tokens=False)
    assert plain(reordering.last) == plain(found)
    moved = always or found.verdict == "reorder"
    assert places == (list(found.permutation) if moved else list(range(len(texts))))


def test_documents_move_only_where_that_gains_significantly():
    decided, undecided = Reordering(profile=LAST), Reordering(profile=UNDECIDED)
    assert decided.places(TEXTS, TEXTS, KEPT)[-1] == 2
    assert decided.last.verdict == "reorder"
    assert undecided.places(TEXTS, TEXTS, KEPT) == [0, 1, 2, 3, 4]
    assert undecided.last.verdict == "not known"
    assert Reordering(profile=UNDECIDED, always=True).places(TEXTS, TEXTS, KEPT) == [
        *undecided.last.permutation
    ]
    assert undecided.last.permutation != (0, 1, 2, 3, 4)


def test_a_known_model_a_file_and_a_profile_are_taken(tmp_path):
    (tmp_path / "curve.json").write_text("[8, 4, 3, 4, 9]")
    for profile in ("smollm2-135m", profile_of("smollm2-135m"), tmp_path / "curve.json"):
        reordering = Reordering(profile=profile, always=True)
        assert reordering.places(TEXTS, TEXTS, KEPT)[-1] == 2, profile


def test_scores_lengths_prefix_and_suffix_are_those_given():
    """Over tokens, so that what stands before and behind counts; the middle document is ten times as long."""
    profile = Profile.from_weights(np.array([9.0, 5.0, 1.0, 2.0, 3.0, 8.0]))
    options = {"length": lambda text: 10.0 if "lamp" in text else 1.0, "prefix": 3.0, "suffix": 2.0}
    reordering = Reordering(profile=profile, score=lambda text: 1.0 + len(text), **options)
    reordering.places(TEXTS, TEXTS, [("score", None)] * 5)
    lengths, scores = [1.0, 1.0, 10.0, 1.0, 1.0], [1.0 + len(text) for text in TEXTS]
    found = order(5, scores, lengths, profile=profile, prefix=3.0, suffix=2.0)
    assert plain(reordering.last) == plain(found)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({}, "profile"),
        ({"profile": 3}, "profile"),
        ({"profile": LAST, "prefix": -1}, "prefix"),
        ({"profile": LAST, "suffix": "x"}, "suffix"),
        ({"profile": LAST, "score": 3}, "score"),
        ({"profile": LAST, "lengths": len}, "lengths"),
    ],
)
def test_an_option_that_cannot_be_right_is_refused(options, argument):
    refused(argument, lambda: Reordering(**options))


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("llama_index", "llama_index", "llama-index"),
        ("haystack", "haystack", "haystack"),
    ],
)
def test_an_absent_framework_is_named_with_the_extra_that_brings_it(module, package, extra, monkeypatch):
    ours = f"posbias.ordering.adapters.{module}"
    for name in [name for name in sys.modules if name == ours or name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError) as caught:
        import_module(ours)
    assert f"posbias[{extra}]" in str(caught.value)
