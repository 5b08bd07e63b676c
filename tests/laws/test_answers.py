"""Retrieval asked in words: what is scored, what is resampled, and what holds for any answers."""

import itertools
import math
import re
import string
from dataclasses import replace

import numpy as np
import pytest
from answers import plain
from command import full_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from readers import listed, reads, says_the_last
from refused import refused
from scipy.stats import norm, t

from posbias.asking.kept import AnswersRead, read_answers
from posbias.asking.requests import Place, Request, cost, each_answer
from posbias.core.errors import InputFileError, ModelError, OutputFileError
from posbias.core.matching import Refused, normalised
from posbias.core.spec import encode
from posbias.profiles.estimate import MOST_DRAWS, Estimate
from posbias.profiles.gaps import EQUIVALENCE, GAPS, MEAN, RESAMPLES, resampled
from posbias.profiles.place_differences import curve_differences, profile_difference, same_trials
from posbias.profiles.places import ABSENT, ALONE, ARMS, SHUFFLED, Places
from posbias.profiles.profile import Profile
from posbias.retrieval.documents import DocumentSet, read_document_sets
from posbias.retrieval.jobs import retrieval_job
from posbias.retrieval.session import Session, ask
from posbias.retrieval.trials import Trial

KEYS = retrieval_job("keys", pairs=6, positions=3, prompts=20)


def reads_the_end(prompt):
    """Answers rightly, but sees the last two of a list alone."""
    return reads(prompt, first=0, last=2)


def trial(right, *wrong, accepted=()):
    return Trial(("",), (), (right, *wrong), (0,), (0.0,), {}, accepted)


# ── trials ──


@pytest.mark.parametrize("task", ["keys", "needle", "documents"])
def test_control_arms_hold_what_their_names_say(task):
    sets = tuple(
        DocumentSet(
            f"Where is the {k}?",
            tuple(f"Text {k}.{j} is here." for j in range(4)),
            (f"Gold {k} lies.",),
            (("Gold",),),
        )
        for k in range(3)
    )
    text = " ".join(f"Sentence number {k} of this text says little." for k in range(400))
    job = retrieval_job(task, positions=3, prompts=3, length=120 if task == "needle" else None)
    held = {"needle": {"text": text}, "documents": {"documents": sets}}
    trials = Session((job,), **held.get(task, {})).trials(job)
    for index in range(3):
        made = trials.trial(index)
        gold = sets[index].gold[0] if task == "documents" else made.answers[0]
        assert tuple(made.arms) == ARMS
        assert gold not in made.arms[ABSENT]
        assert gold in made.arms[ALONE]
        assert len(made.arms[ALONE]) < len(made.arms[ABSENT])
        words = lambda prompt: sorted(re.findall(r"[a-zA-Z]+", prompt))  # noqa: E731
        assert words(made.arms[SHUFFLED]) == words(made.asked[0]) == words(made.asked[-1])
        assert made.arms[SHUFFLED] != made.asked[0]


def test_only_the_first_gold_document_moves_and_the_others_keep_one_order():
    others = tuple(f"Other {k}." for k in range(5))
    held = DocumentSet("What?", others, ("Moved gold.", "Second gold."), (("moved",), ("second",)))
    job = retrieval_job("documents", positions=4, prompts=2)
    made = Session((job,), documents=(held, held)).trials(job).trial(1)
    orders = []
    for prompt in made.asked:
        shown = re.findall(r"Document \[\d+\] (.*)", prompt)
        assert len(shown) == 7
        orders.append([one for one in shown if one != "Moved gold."])
        assert re.findall(r"Document \[(\d+)\]", prompt) == [str(k) for k in range(1, 8)]
    assert all(order == orders[0] for order in orders)
    assert made.asked[0].index("Moved") < made.asked[0].index("Other")
    assert [
        text[place:].startswith("Moved") for text, place in zip(made.asked, made.places, strict=True)
    ] == [True] * 4
    assert made.depths == (0.0, pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0)


# ── scoring ──

LAMP = trial("lamp", "chair", "bridge")
FACTS = trial("x", accepted=(("June", "the sixth month"), ("Rome",)))


@given(st.text(), st.text(string.ascii_letters + " .,", min_size=1))
def test_normalising_twice_changes_nothing_and_what_contains_the_answer_is_right(around, word):
    assert normalised(normalised(around)) == normalised(around)
    if normalised(word):
        assert trial(word).right(f"{around} {word} {around}") == (True,)


@pytest.mark.parametrize(
    ("answer", "asked", "contains", "first"),
    [
        ("The lamp.", LAMP, (True,), (True,)),
        ("lamps", LAMP, (False,), (False,)),
        ("It is a chair, not a lamp", LAMP, (True,), (False,)),
        ("LAMP, chair", LAMP, (True,), (True,)),
        ("", LAMP, (False,), (False,)),
        # of two that begin together the longer one is meant
        ("red lamp", trial("red", "red lamp"), (True,), (False,)),
        ("red lamp", trial("red lamp", "red"), (True,), (True,)),
        ("in the sixth month", FACTS, (True, False), None),
        ("Rome, in June", FACTS, (True, True), None),
    ],
)
def test_an_answer_is_scored_by_the_stated_rule(answer, asked, contains, first):
    assert asked.right(answer, "contains") == contains
    assert first is None or asked.right(answer, "first") == first


# ── resampling ──


def plain_intervals(samples, seed):
    """The same in loops: whole sets drawn with replacement, means, widened percentiles."""
    from posbias.core import machine

    random, sets = machine.stream(seed, "retrieval.bootstrap"), len(samples)
    means = [samples[random.integers(sets, size=sets)].mean(axis=0) for _ in range(RESAMPLES)]
    tail = norm.cdf(-t.ppf(0.975, sets - 1) * math.sqrt(sets / (sets - 1)))
    return np.quantile(means, [tail, 1 - tail], axis=0)


@settings(max_examples=4)
@given(st.integers(2, 40), st.integers(0, 10**6))
def test_resamples_are_those_of_a_plain_loop(sets, seed):
    samples = np.random.default_rng(seed).integers(0, 2, size=(sets, 3)).astype(float)
    samples[0], samples[1] = 0, 1
    found = [*resampled({(0.0, 1.0): dict(zip("abc", samples.T, strict=True))}, seed).values()]
    low, high = plain_intervals(samples, seed)
    for k, one in enumerate(found):
        assert one.interval == pytest.approx((low[k], high[k]), abs=1e-12)
        assert one.value == pytest.approx(samples[:, k].mean())
        assert 0 <= one.interval[0] <= one.value <= one.interval[1] <= 1
    # what never varies has the interval of the number of sets alone
    same = resampled({(-1.0, 1.0): {"a": samples[:, 0] * 0}}, seed)["a"]
    other = 1 - 0.05 ** (1 / sets)
    assert (same.value, same.se, same.interval) == (0, 0, pytest.approx((-other, other)))


@given(st.floats(0.01, 0.6), st.integers(2, 400), st.floats(0.02, 0.5))
def test_the_sets_that_a_width_takes_are_the_fewest_that_reach_it(se, n, width):
    needed = Estimate(0.0, se, n).draws_for(width)
    reach = lambda sets: t.ppf(0.975, sets - 1) * se * math.sqrt(n / sets)  # noqa: E731
    if needed <= MOST_DRAWS:
        assert reach(needed) <= width * (1 + 1e-9)
    if needed > 2:
        assert reach(needed - 1) > width * (1 - 1e-9)


# ── asking ──


def test_a_reader_finds_all_and_one_who_reads_the_end_has_recency():
    reader = ask(reads, KEYS)
    assert [one.value for one in reader.curves["accuracy"]] == [1, 1, 1]
    assert [reader.overall[arm].value for arm in (ABSENT, ALONE, SHUFFLED)] == [0, 1, 1]
    assert (reader.able, reader.verdict) == (True, "at ceiling")
    half = ask(reads_the_end, KEYS)
    assert [one.value for one in half.curves["accuracy"]] == [0, 0, 1]
    assert half.verdict == "recency"
    assert half.deciding["last - middle"].value == 1


def test_one_who_never_answers_is_at_chance_where_trials_are_enough():
    curve, few = (ask(lambda prompt: "I cannot tell.", replace(KEYS, prompts=one)) for one in (20, 4))
    assert (curve.able, curve.verdict, curve.doubts) == (False, "at chance", [])
    assert (few.able, few.verdict, len(few.doubts)) == (False, "inconclusive", 1)


@pytest.mark.parametrize("place", [0, 2, -1])
def test_one_who_copies_from_a_place_whatever_is_asked_is_at_chance(place):
    """The place alone has accuracy 1 where it is among those asked at, and lists in a drawn order tell."""
    copier = ask(lambda prompt: listed(prompt)[place % len(listed(prompt))][1], replace(KEYS, prompts=60))
    assert max(one.value for one in copier.curves["accuracy"]) == 1
    assert copier.overall[SHUFFLED].value == pytest.approx(copier.chance, abs=0.2)
    assert (copier.able, copier.verdict) == (False, "at chance")


def test_threads_change_no_number_and_the_curve_is_a_profile_with_its_trials():
    curve = ask(says_the_last, KEYS)
    assert plain(ask(says_the_last, KEYS, concurrency=4)) == plain(curve)
    profile = curve.profile()
    assert (profile.kind, profile.measures, profile.samples.shape) == ("rate", "accuracy", (20, 3))
    asked = Session((replace(KEYS, prompts=4),)).requests()
    assert dict(each_answer(str.upper, asked, 3)) == {one: one.prompt.upper() for one in asked}


def noisy(prompt):
    """Right in about four of five, by a rule of the prompt alone."""
    return reads(prompt) if int(Request(0, Place("arm", ""), prompt).id, 16) % 5 else "nobody knows"


def test_asking_goes_on_until_the_width_is_reached():
    job = retrieval_job("keys", pairs=6, positions=3, prompts=3000)
    curve = ask(noisy, job, until=0.1)
    assert curve.half_width <= 0.1
    assert 40 < curve.prompts == curve.job["prompts"] < 400
    short, reached, plain = (ask(noisy, replace(job, prompts=40), until=until) for until in (0.01, 0.9, None))
    assert (short.reached, reached.reached, plain.reached) == (False, True, None)
    assert short.prompts == 40
    assert short.trials_for(0.01) > 1000


def test_what_became_of_answers_is_said_once_however_many_rounds_there_were(caplog):
    def declines(prompt):
        return Refused("") if int(Request(0, Place("arm", ""), prompt).id, 16) % 4 == 0 else noisy(prompt)

    curve = ask(declines, retrieval_job("keys", pairs=6, positions=3, prompts=100), until=0.01)
    assert curve.prompts == 100
    assert len(caplog.records) == 1


def test_a_verdict_on_one_end_leaves_the_other_inconclusive():
    """The last place is always found; the first more often than the middle, but not surely."""
    rows = np.zeros((40, 3), dtype=bool)
    rows[:, 2], rows[:2, 0] = True, True
    curve = curve_of(rows)
    assert (curve.verdict, len(curve.doubts)) == ("recency", 1)
    assert curve.ends == {"first": "inconclusive", "last": "favoured"}
    assert curve_of(~rows).ends["last"] == "at a disadvantage"


# ── files ──


@settings(max_examples=20)
@given(cut=st.integers(0, 4000))
def test_a_file_cut_anywhere_goes_on_with_the_same_answers(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "a.jsonl"
    job = retrieval_job("keys", pairs=4, positions=3, prompts=3)
    whole = ask(says_the_last, job, answers=path)
    content = path.read_bytes()
    path.write_bytes(content[:cut])
    assert plain(ask(says_the_last, job, answers=path)) == plain(whole)
    assert sorted(path.read_bytes().splitlines()) == sorted(content.splitlines())


@pytest.mark.parametrize("concurrency", [1, 3])
def test_after_an_error_or_on_a_full_disk_nothing_is_asked_twice(tmp_path, concurrency):
    path, calls, whole = tmp_path / "answers.jsonl", itertools.count(1), ask(reads, KEYS)

    def fails(prompt):
        if next(calls) > 25:
            raise OSError("the line is cut")
        return reads(prompt)

    with pytest.raises(OSError, match="the line is cut"):
        ask(fails, KEYS, answers=path, concurrency=concurrency)
    assert len(read_answers(path)) == 25
    again = []
    curve = ask(lambda prompt: (again.append(prompt), reads(prompt))[1], KEYS, answers=path)
    assert (len(again), plain(curve)) == (20 * 6 - 25, plain(whole))
    full = tmp_path / "full.jsonl"
    with full_disk(3000), pytest.raises(OutputFileError):
        ask(reads, KEYS, answers=full)
    assert full.stat().st_size == 3000
    assert plain(ask(reads, KEYS, answers=full)) == plain(whole)


def test_what_is_no_text_is_no_answer_and_who_gets_none_leaves_neither_file_nor_folder(tmp_path):
    with pytest.raises(ModelError):
        ask(lambda prompt: 3, KEYS, answers=tmp_path / "new/deep/a.jsonl")
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_model_or_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    ask(reads, KEYS, answers=path, asked_of={"model": "one"})
    for text in (path.read_text(), "some text", '{"id": 1}\n{"id": 2}\n', '\n{"id": 1}', '\n\n{"id'):
        path.write_text(text)
        with pytest.raises(InputFileError):
            ask(reads, KEYS, answers=path, asked_of={"model": "two"})
        assert path.read_text() == text


def test_answers_are_read_by_id_or_prompt_and_one_prompt_has_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "p", "answer": "x\u2028y\u0085z"}\r\n', encoding="utf-8", newline="")
    assert read_answers(path) == {Request(0, Place("arm", ""), "p").id: "x\u2028y\u0085z"}
    with pytest.raises(InputFileError, match="jsonl"):
        ask(AnswersRead(path), KEYS)
    twice = '{"id": "a", "answer": "x"}\n{"id": "a", "answer": "y"}'
    for lines in ('{"id": "a"}', '{"answer": "b"}', '{"id": 3, "answer": "b"}', "", twice):
        path.write_text(lines)
        with pytest.raises(InputFileError):
            read_answers(path)


def test_the_cost_leaves_out_what_is_known_and_counts_equal_prompts_once():
    asked = Session((replace(KEYS, prompts=2),)).requests()[:6]
    whole = cost([*asked, *asked], {}, 10)
    assert (whole.requests, whole.most_out) == (6, 60)
    assert whole.words_in == sum(len(re.findall(r"\w+|[^\w\s]", one.prompt)) for one in asked)
    assert cost(asked, {asked[0].id: "x"}).requests == 5


# ── documents ──

GOOD = '{"question": "q", "documents": ["a", "b", "c"], "gold": 1, "answers": ["x"]}'


THEIRS = (
    '{"question": "q", "answers": ["x", "y"], "ctxs": [{"title": "T", "text": "a", "isgold": false},'
    ' {"title": "G", "text": "b", "isgold": true}, {"title": "", "text": "c", "isgold": false}]}'
)
SEVERAL = '{"question": "q", "documents": ["a", "b", "c", "d"], "gold": [2, 0], "answers": [["x"], ["y"]]}'


def test_documents_are_read_as_lines_as_tables_and_as_liu_et_al_wrote_them(tmp_path):
    path, plainly = tmp_path / "sets.jsonl", DocumentSet("q", ("a", "c"), ("b",), (("x",),))
    path.write_text(f"{GOOD}\n\n{THEIRS}\n{SEVERAL}\n")
    one, two, three = read_document_sets(path)
    assert one == plainly
    assert two == DocumentSet("q", ("(Title: T) a", "c"), ("(Title: G) b",), (("x", "y"),))
    assert three == DocumentSet("q", ("b", "d"), ("c", "a"), (("x",), ("y",)))
    table, answers = tmp_path / "sets.csv", tmp_path / "answers.csv"
    table.write_text('question,documents,gold,answers\nq,"[\'a\', \'b\', \'c\']",1,"[""x""]"\n')
    assert read_document_sets(table) == (plainly,)
    table.write_text("question,document_2,document_10,document_1,gold,answer\nq,b,c,a,1,x\n")
    assert read_document_sets(table) == (plainly,)
    (tmp_path / "sets.json").write_text(  # cells that a row has not, as frames are written
        '[{"question": "q", "document_1": "a", "document_2": "x", "document_3": "c", "document_4": NaN,'
        ' "gold": "", "answers": ["x"]}]'
    )
    assert read_document_sets(tmp_path / "sets.json") == (DocumentSet("q", ("a", "c"), ("x",), (("x",),)),)
    answers.write_text("id,answer\na,12\nb,c\n")
    assert read_answers(answers) == {"a": "12", "b": "c"}


def test_gold_that_seems_to_count_from_1_is_hinted_at(tmp_path, caplog):
    """Not where one set says that gold counts from 0."""
    row = '{"question": "q", "documents": ["a", "it is x", "c"], "gold": %d, "answers": ["x"]}\n'
    for golds, hints in (((1, 2), 0), ((2, 2), 1)):
        (tmp_path / "sets.jsonl").write_text("".join(row % gold for gold in golds))
        read_document_sets(tmp_path / "sets.jsonl")
        assert len(caplog.records) == hints


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"q"', '""'), ('"q"', "3"), ('["a", "b", "c"]', '["a", "b"]'), ('["a", "b", "c"]', '"abc"'),
        ('"gold": 1', '"gold": 3'), ('"gold": 1', '"gold": true'), ('"gold": 1', '"gold": []'),
        ('"gold": 1', '"gold": [1, 1]'), ('"gold": 1', '"gold": [0, 1]'), ('["x"]', '["the"]'), ('["x"]', "[]"),
        (GOOD, "{}"), (GOOD, "[]"), (GOOD, ""), (GOOD, '{"ctxs": 3}'),
    ],
)  # fmt: skip
def test_a_bad_document_set_is_named(tmp_path, old, new):
    path = tmp_path / "sets.jsonl"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputFileError, match=r"sets\.jsonl"):
        read_document_sets(path)


def test_what_a_task_has_not_is_refused():
    held = DocumentSet("q", ("a", "b"), ("c",), (("x",),))
    three = retrieval_job("documents", positions=3, prompts=3)
    refused("text", lambda: Session((KEYS,), text="x").trials(KEYS))
    refused("documents", lambda: Session((three,)).trials(three))
    refused("prompts", lambda: Session((three,), documents=(held, held)).trials(three))
    five = retrieval_job("documents", prompts=2)
    refused("positions", lambda: Session((five,), documents=(held, held)).trials(five))
    refused("pairs", lambda: retrieval_job("documents", pairs=3))
    refused("until", lambda: ask(reads, KEYS, until=1.0))


# --- what another way to ask changes ---------------------------------------------------------------------


JOB = encode(retrieval_job("keys", pairs=9, positions=3))


def curve_of(found):
    """A curve whose fact is found always in a drawn order and never without."""
    arms = {name: np.full(len(found), name != ARMS[0]) for name in ARMS}
    depth = np.linspace(0, 1, found.shape[1])
    job = JOB | {"prompts": len(found)}
    about = {"rule": "first", "chance": 1 / 9, "length": 50.0, "unit": "words", "equivalence": EQUIVALENCE}
    return Places({"accuracy": found, "all_found": found}, depth, {"model": "m"}, job, arms, **about)


def drawn(rates, trials, seed):
    return np.random.default_rng(seed).random((trials, 3)) < np.array(rates)


@settings(max_examples=10)
@given(st.integers(4, 60), st.integers(0, 10**6))
def test_differences_are_those_of_plain_loops_and_turn_round_with_the_ways(trials, seed):
    one, other = drawn([0.5] * 3, trials, seed), drawn([0.7] * 3, trials, seed + 1)
    (found,) = curve_differences({"a": curve_of(one), "b": curve_of(other)})
    ends = {GAPS[0]: (0, 1), GAPS[1]: (2, 1), GAPS[2]: (0, 2)}
    for name, (here, there) in ends.items():
        apart = [(b[here] * 1 - b[there]) - (a[here] * 1 - a[there]) for a, b in zip(one, other, strict=True)]
        assert found.numbers[name].value == pytest.approx(sum(apart) / trials)
    assert found.numbers[MEAN].value == pytest.approx(other.mean() - one.mean())
    (back,) = curve_differences({"b": curve_of(other), "a": curve_of(one)})
    for name, number in found.numbers.items():
        assert back.numbers[name].value == pytest.approx(-number.value)
        low, high = number.interval
        assert low <= number.value <= high


def test_accuracy_alone_is_no_bias_and_one_who_reads_the_end_alone_has_another():
    every, last = np.ones((200, 3), bool), np.tile([False, False, True], (200, 1))
    hard = every & (np.random.default_rng(3).random((200, 1)) < 0.5)
    for rows, verdict, changed in (
        (hard, "no difference", []),
        (last, "changes the bias", [GAPS[1], GAPS[2]]),
    ):
        (found,) = curve_differences({"a": curve_of(every), "b": curve_of(rows)})
        assert (found.numbers[MEAN].sign, found.verdict, found.changed) == (-1, verdict, changed)


@given(st.integers(0, 10**6))
@settings(max_examples=2)
def test_a_way_held_against_itself_changes_nothing(seed):
    """No trial differs: only their number, and that of the four intervals, says how sure that is."""
    curves = [curve_of(drawn([0.9, 0.2, 0.6], trials, seed)) for trials in (40, 400)]
    few, many = (curve_differences({"a": curve, "b": curve})[0] for curve in curves)
    assert (few.verdict, few.changed, many.verdict) == ("inconclusive", [], "no difference")
    assert all(number.value == number.se == 0 for number in few.numbers.values())
    assert few.numbers[GAPS[0]].interval[1] == pytest.approx(2 * (1 - (0.05 / 4) ** (1 / 40)))


# ── of profiles ──


@pytest.mark.parametrize(
    "change", [{"job": JOB | {"seed": 1}}, {"length": 51.0}, {"rule": "contains"}, {"depth": np.arange(3)}]
)
def test_profiles_of_other_trials_are_compared_as_unpaired(change):
    """What makes a trial hard does not cancel: intervals are wider than within trials, values the same."""
    hard = np.random.default_rng(3).random((80, 1)) < 0.5
    rows = (hard & np.ones((80, 3), bool)).astype(float)
    curve = curve_of(rows.astype(bool)).profile()
    other = replace(curve, places=replace(curve.places, **change))
    assert not same_trials(curve, other)
    within, apart = profile_difference(curve, curve), profile_difference(other, curve)
    assert (within.paired, apart.paired) == (True, False)
    for name, number in apart.numbers.items():
        assert number.value == pytest.approx(within.numbers[name].value)
    assert apart.numbers[MEAN].half_width > 3 * within.numbers[MEAN].half_width


def test_curves_at_unlike_places_and_of_unlike_numbers_of_trials_are_compared_by_their_ends():
    p = Profile.from_rows(drawn([0.9, 0.2, 0.9], 60, 1).astype(float), kind="rate", measures="accuracy")
    five = np.random.default_rng(2).random((90, 5)) < np.array([0.1, 0.2, 0.2, 0.3, 0.9])
    q = Profile.from_rows(five.astype(float), kind="rate", measures="accuracy")
    found = profile_difference(p, q)
    assert (found.trials, found.paired) == ((60, 90), False)
    assert "first - middle" in found.changed
    assert profile_difference(p, replace(q, samples=None)) is None
    assert profile_difference(p, replace(q, measures="score")) is None


def test_other_trials_are_refused():
    curve = curve_of(drawn([0.5] * 3, 20, 0))
    for other in (
        replace(curve, rule="contains"),
        replace(curve, length=51.0),
        replace(curve, job={**curve.job, "seed": 1}),
        curve_of(curve.results["accuracy"][:-1]),
    ):
        refused("curves", lambda other=other: curve_differences({"a": curve, "b": other}))
    refused("curves", lambda: curve_differences({"a": curve}))
