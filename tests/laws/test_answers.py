"""Retrieval asked in words: what is scored, what is resampled, and what holds for any answers."""

import itertools
import json
import math
import re
import resource
import string
from dataclasses import replace

import numpy as np
import pytest
from answers import plain
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t

from posbias.core.errors import InputFileError, InvalidValueError, ModelError, OutputFileError
from posbias.core.spec import encode
from posbias.profiles.estimate import MOST_DRAWS, Estimate
from posbias.retrieval.answers import (
    Request,
    answers_made_elsewhere,
    ask,
    cost,
    each_answer,
    read_answers,
    requests,
    requests_of,
    trials_of,
    write_requests,
)
from posbias.retrieval.curve import answer_curve
from posbias.retrieval.documents import DocumentSet, read_document_sets
from posbias.retrieval.scoring import is_right, normalised
from posbias.retrieval.statistics import RESAMPLES, resampled
from posbias.retrieval.trials import ABSENT, ALONE, ARMS, SHUFFLED, Trial, retrieval_job

KEYS = retrieval_job("keys", pairs=6, positions=3, prompts=20)


def reads(prompt):
    """Answers a list in JSON rightly, and with a word of its own where the owner is not in it."""
    owner = re.findall(r'"([\w ]+)": "$', prompt)[0]
    pairs = dict(re.findall(r'"([\w ]+)": "([\w ]+)"', prompt))
    return pairs.get(owner, "nobody knows")


def listed(prompt):
    return re.findall(r'"[\w ]+": "([\w ]+)"', prompt)


def says_the_last(prompt):
    return listed(prompt)[-1]


def reads_the_end(prompt):
    """Answers rightly, but sees the last two of a list alone."""
    owner = re.findall(r'"([\w ]+)": "$', prompt)[0]
    return dict(re.findall(r'"([\w ]+)": "([\w ]+)"', prompt)[-2:]).get(owner, "nobody knows")


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
    trials = trials_of(
        job, text=text if task == "needle" else None, documents=sets if task == "documents" else None
    )
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
    made = trials_of(retrieval_job("documents", positions=4, prompts=2), documents=(held, held)).trial(1)
    orders = []
    for prompt in made.asked:
        listed = re.findall(r"Document \[\d+\] (.*)", prompt)
        assert len(listed) == 7
        orders.append([one for one in listed if one != "Moved gold."])
        assert re.findall(r"Document \[(\d+)\]", prompt) == [str(k) for k in range(1, 8)]
    assert all(order == orders[0] for order in orders)
    assert made.asked[0].index("Moved") < made.asked[0].index("Other")
    assert [
        text[place:].startswith("Moved") for text, place in zip(made.asked, made.places, strict=True)
    ] == [True] * 4
    assert made.depths == (0.0, pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0)


# ── scoring ──


@pytest.mark.parametrize(
    ("answer", "contains", "first"),
    [
        ("The lamp.", True, True),
        ("lamps", False, False),
        ("It is a chair, not a lamp", True, False),
        ("lamp, chair", True, True),
        ("LAMP", True, True),
        ("", False, False),
    ],
)
def test_an_answer_is_scored_by_the_stated_rule(answer, contains, first):
    asked = trial("lamp", "chair", "bridge")
    assert is_right(answer, asked, "contains") == (contains,)
    assert is_right(answer, asked, "first") == (first,)


def test_of_two_that_begin_together_the_longer_one_is_meant():
    assert is_right("red lamp", trial("red", "red lamp"), "first") == (False,)
    assert is_right("red lamp", trial("red lamp", "red"), "first") == (True,)


def test_several_facts_are_scored_one_by_one():
    asked = trial("x", accepted=(("June", "the sixth month"), ("Rome",)))
    assert is_right("in the sixth month", asked, "contains") == (True, False)
    assert is_right("Rome, in June", asked, "contains") == (True, True)


@given(st.text(), st.text(string.ascii_letters + " .,", min_size=1))
def test_normalising_twice_changes_nothing_and_what_contains_the_answer_is_right(around, word):
    assert normalised(normalised(around)) == normalised(around)
    if normalised(word):
        assert is_right(f"{around} {word} {around}", trial(word), "contains") == (True,)


# ── resampling ──


def plain_intervals(samples, seed):
    """The same in loops: whole sets drawn with replacement, means, widened percentiles."""
    from posbias.core import machine

    random, sets = machine.stream(seed, "retrieval.bootstrap"), len(samples)
    means = [samples[random.integers(sets, size=sets)].mean(axis=0) for _ in range(RESAMPLES)]
    tail = norm.cdf(-t.ppf(0.975, sets - 1) * math.sqrt(sets / (sets - 1)))
    return np.quantile(means, [tail, 1 - tail], axis=0)


@settings(max_examples=10)
@given(st.integers(2, 40), st.integers(0, 10**6))
def test_resamples_are_those_of_a_plain_loop(sets, seed):
    samples = np.random.default_rng(seed).integers(0, 2, size=(sets, 3)).astype(float)
    samples[0], samples[1] = 0, 1
    found = resampled(samples, [(0.0, 1.0)] * 3, seed)
    low, high = plain_intervals(samples, seed)
    for k, one in enumerate(found):
        assert one.interval == pytest.approx((low[k], high[k]), abs=1e-12)
        assert one.value == pytest.approx(samples[:, k].mean())
        assert 0 <= one.interval[0] <= one.value <= one.interval[1] <= 1


def test_differences_are_paired():
    """Two places that differ in the same sets have a difference without spread, however much each varies."""
    hits = np.random.default_rng(1).integers(0, 2, size=50).astype(float)
    both = np.stack([hits, hits, hits - hits], axis=1)
    place, _, gap = resampled(both, [(0, 1), (0, 1), (-1, 1)])
    assert place.se > 0.05
    assert (gap.value, gap.se) == (0, 0)
    rule_of_three = 1 - 0.05 ** (1 / 50)
    assert gap.interval == pytest.approx((-rule_of_three, rule_of_three))


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


@pytest.mark.parametrize("place", [0, 2, -1])
def test_one_who_copies_from_a_place_whatever_is_asked_is_at_chance(place):
    """The place alone has accuracy 1 where it is among those asked at, and lists in a drawn order tell."""
    copier = ask(lambda prompt: listed(prompt)[place % len(listed(prompt))], replace(KEYS, prompts=60))
    assert max(one.value for one in copier.curves["accuracy"]) == 1
    assert copier.overall[SHUFFLED].value == pytest.approx(copier.chance, abs=0.2)
    assert (copier.able, copier.verdict) == (False, "at chance")


def test_one_who_never_answers_is_at_chance_and_says_so():
    curve = ask(lambda prompt: "I cannot tell.", KEYS)
    assert (curve.able, curve.verdict) == (False, "at chance")
    assert curve.doubts == []
    few = ask(lambda prompt: "I cannot tell.", replace(KEYS, prompts=4))
    assert (few.able, few.verdict, len(few.doubts)) == (False, "inconclusive", 1)


def test_the_number_of_threads_changes_no_number():
    assert plain(ask(says_the_last, KEYS, concurrency=4)) == plain(ask(says_the_last, KEYS))


def test_the_curve_is_a_profile_with_its_trials():
    profile = ask(says_the_last, KEYS).profile()
    assert (profile.kind, profile.measures, profile.samples.shape) == ("rate", "accuracy", (20, 3))


def noisy(prompt):
    """Right in about four of five, by a rule of the prompt alone."""
    return reads(prompt) if int(Request(0, "", None, prompt).id, 16) % 5 else "nobody knows"


def test_asking_goes_on_until_the_width_is_reached():
    job = retrieval_job("keys", pairs=6, positions=3, prompts=3000)
    curve = ask(noisy, job, until=0.1)
    assert curve.half_width <= 0.1
    assert 40 < curve.prompts < 400
    assert curve.job["prompts"] == curve.prompts


def test_whether_a_width_was_reached_is_known():
    job = retrieval_job("keys", pairs=6, positions=3, prompts=40)
    short, reached, plain = (ask(noisy, job, until=until) for until in (0.01, 0.9, None))
    assert (short.reached, reached.reached, plain.reached) == (False, True, None)
    assert short.prompts == 40
    assert short.trials_for(0.01) > 1000
    with pytest.raises(InvalidValueError, match="until"):
        ask(reads, KEYS, until=1.0)


def test_without_a_job_the_documents_or_the_text_decide_it():
    sets = tuple(
        DocumentSet(f"what is {k}?", ("a", "b", "c"), (f"it is w{k}",), ((f"w{k}",),)) for k in range(5)
    )
    curve = ask(lambda prompt: " ".join(re.findall(r"w\d", prompt)), documents=sets)
    assert (curve.job["task"], curve.job["positions"], curve.prompts) == ("documents", 4, 5)
    assert curve.answers.found.all()
    text = "The sun rose over the hills. Birds sang. " * 80
    assert ask(lambda prompt: "nothing", text=text).job["task"] == "needle"


def test_a_verdict_on_one_end_says_that_the_other_is_inconclusive():
    """The last place is always found; the first more often than the middle, but not surely."""
    rows = np.zeros((40, 3), dtype=bool)
    rows[:, 2], rows[:2, 0] = True, True
    arms = {name: np.full(40, name != ABSENT) for name in ARMS}

    def curve_of(found):
        depth = np.array([0, 0.5, 1])
        return answer_curve("m", encode(KEYS), "first", found, rows, arms, depth, 50.0, chance=1 / 6)

    curve = curve_of(rows)
    assert curve.verdict == "recency"
    assert curve.ends == {"first": "inconclusive", "last": "favoured"}
    assert len(curve.doubts) == 1
    turned = curve_of(~rows)
    assert turned.ends["last"] == "at a disadvantage"


def test_what_is_no_text_is_no_answer():
    with pytest.raises(ModelError, match="expected a text"):
        ask(lambda prompt: 3, KEYS)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_error_is_raised_once_and_what_was_answered_before_is_kept(tmp_path, concurrency):
    path, calls = tmp_path / "answers.jsonl", itertools.count(1)

    def fails(prompt):
        if next(calls) > 25:
            raise OSError("the line is cut")
        return reads(prompt)

    with pytest.raises(OSError, match="the line is cut"):
        ask(fails, KEYS, answers=path, concurrency=concurrency)
    kept = len(read_answers(path))
    assert kept == 25
    again = []
    curve = ask(lambda prompt: (again.append(prompt), reads(prompt))[1], KEYS, answers=path)
    assert len(again) == 20 * 6 - kept, "nothing is asked twice"
    assert plain(curve) == plain(ask(reads, KEYS))


# ── files ──


def test_prompts_are_written_answered_elsewhere_and_read_back(tmp_path):
    asked = requests(trials_of(KEYS), KEYS.prompts)
    rows = [json.loads(line) for line in write_requests(asked, tmp_path / "p.jsonl").read_text().splitlines()]
    assert [row["arm"] for row in rows[:6]] == ["placed"] * 3 + list(ARMS)
    answered = tmp_path / "a.jsonl"
    answered.write_text(
        "".join(json.dumps({"id": row["id"], "answer": says_the_last(row["prompt"])}) + "\n" for row in rows)
    )
    curve = ask(answers_made_elsewhere(read_answers(answered), "a.jsonl"), KEYS)
    assert plain(curve) == plain(ask(says_the_last, KEYS))
    answered.write_text("".join(answered.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(InputFileError, match="jsonl"):
        ask(answers_made_elsewhere(read_answers(answered), "a.jsonl"), KEYS)


def test_a_prompt_may_stand_for_its_id_and_two_answers_to_one_are_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "p", "answer": "x"}\n')
    assert read_answers(path) == {Request(0, "", None, "p").id: "x"}
    path.write_text('{"prompt": "p", "answer": "x"}\n{"prompt": "p", "answer": "y"}\n')
    with pytest.raises(InputFileError, match="line 2: id"):
        read_answers(path)


@pytest.mark.parametrize(
    "line", ["[]", "{", '{"id": "a"}', '{"answer": "b"}', '{"id": 3, "answer": "b"}', ""]
)
def test_a_bad_line_of_answers_is_named(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputFileError, match=r"a\.jsonl"):
        read_answers(path)


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


def test_a_file_of_another_model_or_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    ask(reads, KEYS, answers=path, asked_of={"model": "one"})
    before = path.read_bytes()
    with pytest.raises(InputFileError, match="model and options"):
        ask(reads, KEYS, answers=path, asked_of={"model": "two"})
    assert path.read_bytes() == before
    for foreign in ("some text", "some text\n", '{"id": 1}\n{"id": 2}\n', '\n{"id": 1}', '\n\n{"id'):
        path.write_text(foreign)
        with pytest.raises(InputFileError):
            ask(reads, KEYS, answers=path)
        assert path.read_text() == foreign


def test_a_full_disk_is_one_error_and_what_was_whole_goes_on(tmp_path):
    """The limit on a file's size stands for the disk's."""
    path, whole = tmp_path / "a.jsonl", ask(reads, KEYS)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        with pytest.raises(OutputFileError, match=r"cannot write .*a\.jsonl"):
            ask(reads, KEYS, answers=path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == 3000
    assert plain(ask(reads, KEYS, answers=path)) == plain(whole)


def test_marks_that_end_lines_elsewhere_end_none_in_a_file(tmp_path):
    """JSON may hold U+2028 and U+0085 as they are."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a", "answer": "x\u2028y\u0085z"}\r\n', encoding="utf-8", newline="")
    assert read_answers(path) == {"a": "x\u2028y\u0085z"}
    path.write_text(GOOD.replace('"b"', '"b\u2028\u0085"') + "\n", encoding="utf-8")
    assert read_document_sets(path)[0].gold == ("b\u2028\u0085",)


def test_the_cost_leaves_out_what_is_known_and_counts_equal_prompts_once():
    asked = requests_of(trials_of(KEYS).trial(0), 0)
    whole = cost([*asked, *asked], {}, 10)
    assert (whole.requests, whole.most_out) == (6, 60)
    assert whole.words_in == sum(len(re.findall(r"\w+|[^\w\s]", one.prompt)) for one in asked)
    assert cost(asked, {asked[0].id: "x"}).requests == 5


def test_answers_come_with_their_requests_in_any_order():
    asked = requests(trials_of(KEYS), 4)
    assert dict(each_answer(str.upper, asked, 3)) == {one: one.prompt.upper() for one in asked}


# ── documents ──

GOOD = '{"question": "q", "documents": ["a", "b", "c"], "gold": 1, "answers": ["x"]}'


def test_documents_are_read_also_as_liu_et_al_wrote_them(tmp_path):
    path = tmp_path / "sets.jsonl"
    theirs = (
        '{"question": "q", "answers": ["x", "y"], "ctxs": [{"title": "T", "text": "a", "isgold": false},'
        ' {"title": "G", "text": "b", "isgold": true}, {"title": "", "text": "c", "isgold": false}]}'
    )
    several = (
        '{"question": "q", "documents": ["a", "b", "c", "d"], "gold": [2, 0], "answers": [["x"], ["y"]]}'
    )
    path.write_text(f"{GOOD}\n\n{theirs}\n{several}\n")
    one, two, three = read_document_sets(path)
    assert one == DocumentSet("q", ("a", "c"), ("b",), (("x",),))
    assert two == DocumentSet("q", ("(Title: T) a", "c"), ("(Title: G) b",), (("x", "y"),))
    assert three == DocumentSet("q", ("b", "d"), ("c", "a"), (("x",), ("y",)))


def test_documents_and_answers_are_read_from_csv_too(tmp_path):
    lists = """q,"['a', 'b', 'c']",1,"[""x"", ""y""]"\n"""
    (tmp_path / "lists.csv").write_text(f"question,documents,gold,answers\n{lists}")
    (tmp_path / "columns.csv").write_text(
        "question,document_2,document_10,document_1,gold,answer\nq,b,c,a,1,x\n"
    )
    assert read_document_sets(tmp_path / "lists.csv") == (
        DocumentSet("q", ("a", "c"), ("b",), (("x", "y"),)),
    )
    assert read_document_sets(tmp_path / "columns.csv") == (DocumentSet("q", ("a", "c"), ("b",), (("x",),)),)
    (tmp_path / "answers.csv").write_text("id,answer\na,12\nb,c\n")
    assert read_answers(tmp_path / "answers.csv") == {"a": "12", "b": "c"}


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('"q"', '""', "question"), ('"q"', "3", "question"), ('["a", "b", "c"]', '["a", "b"]', "documents"),
        ('["a", "b", "c"]', '"abc"', "documents"), ('"gold": 1', '"gold": 3', "gold"),
        ('"gold": 1', '"gold": true', "gold"),
        ('"gold": 1', '"gold": []', "gold"), ('"gold": 1', '"gold": [1, 1]', "gold"),
        ('["x"]', '["the"]', "answers"),
        ('["x"]', "[]", "answers"), ('"gold": 1', '"gold": [0, 1]', "answers"), (GOOD, "{}", "question"),
        (GOOD, "[]", "line 1"), (GOOD, "{", "line 1"), (GOOD, "", "no line"), (GOOD, '{"ctxs": 3}', "ctxs"),
    ],
)  # fmt: skip
def test_a_bad_document_set_is_named(tmp_path, old, new, key):
    path = tmp_path / "sets.jsonl"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputFileError, match=rf"sets.jsonl.*{key}"):
        read_document_sets(path)


def sets_of(tmp_path, golds):
    """A file of three sets whose second document answers, and what each says of its place."""
    rows = [
        {
            "question": f"what is {k}?",
            "documents": ["a", f"it is w{k}", "c"],
            "gold": gold,
            "answers": [f"w{k}"],
        }
        for k, gold in enumerate(golds)
    ]
    path = tmp_path / "sets.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_gold_counted_from_1_is_hinted_at(tmp_path, caplog):
    read_document_sets(sets_of(tmp_path, [1, 1, [1]]))
    read_document_sets(sets_of(tmp_path, [1, 2, 2]))
    assert not caplog.records, "one set that is right says that they count from 0"
    read_document_sets(sets_of(tmp_path, [2, [2], 2]))
    (record,) = caplog.records
    assert "3 of 3" in record.getMessage()


def test_who_gets_no_answer_leaves_neither_file_nor_folder(tmp_path):
    def refuses(prompt):
        raise ModelError("no")

    with pytest.raises(ModelError):
        ask(refuses, KEYS, answers=tmp_path / "new/deep/a.jsonl")
    assert not list(tmp_path.iterdir())


def test_what_a_task_has_not_is_refused():
    held = DocumentSet("q", ("a", "b"), ("c",), (("x",),))
    three = retrieval_job("documents", positions=3, prompts=3)
    for name, make in {
        "text": lambda: trials_of(KEYS, text="x"),
        "documents": lambda: trials_of(three),
        "prompts": lambda: trials_of(three, documents=(held, held)),
        "positions": lambda: trials_of(retrieval_job("documents", prompts=2), documents=(held, held)),
        "pairs": lambda: retrieval_job("documents", pairs=3),
    }.items():
        with pytest.raises(InvalidValueError, match=f"^{name}: expected"):
            make()
