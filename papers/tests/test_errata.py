"""Errata, readings, statements and their pages: verdicts, numbers and quotes are the same wherever they are
printed; both readings come out as quoted, and agree with other ways to them.
"""

import math
import re
import unicodedata

import numpy as np
import pytest
from measured import measurement
from project import ROLLOUT_FILES
from setting import logged

from posbias.core.errors import InvalidValueError
from posbias.core.sources import BIBLIOGRAPHY
from posbias.profiles.measurements import save_measurement
from posbias.training import Network, RetrievalTask
from posbias.training.probes import largest_gap
from posbias.training.task import make_world, novel_sequences
from posbias_papers.claims import AMENDED
from posbias_papers.cli.verify import findings_table
from posbias_papers.errata import ERRATA, Erratum, errata_page, find_erratum
from posbias_papers.readings import READINGS, UnavailableError, compare_readings, find_readings
from posbias_papers.reproduction import reproduce
from posbias_papers.statements import STATEMENTS, Statement, verify
from posbias_papers.theorems import judge_statements, theorems_page

# --- numbers as errata quote them (".738", "7e-66", "−.31", "22 %", "½") ---------------------------------


def quotes_of(erratum: Erratum) -> list[tuple[str, str, str]]:
    """The numbers that an entry quotes, as texts, with a reading and which of its numbers each is."""
    return [(text, *source.split(": ", 1)) for text, source in erratum.quotes.items()]


def parsed(text: str) -> tuple[float, float]:
    """The number of a quote, and half a unit of its last digit; of a fraction what floating point may lose."""
    if len(text) == 1:
        return unicodedata.numeric(text), 1e-9
    digits, unit = text.replace("−", "-").replace(",", "").removesuffix(" %"), 100.0 if "%" in text else 1.0
    mantissa, _, exponent = digits.partition("e")
    return float(digits) / unit, 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) / unit


@pytest.fixture(scope="module")
def findings():
    """Few instances do: a printed reading that fails brings its witness."""
    return verify(STATEMENTS, instances=8)


# --- errata ------------------------------------------------------------------------------------------------


def test_entries_are_whole_and_quote_numbers_of_their_readings_or_say_why_there_is_none():
    about = {one.key: one.erratum.key for one in READINGS}
    assert len(READINGS) == len(about) == 61
    assert len({one.key for one in ERRATA}) == len(ERRATA)
    for one in ERRATA:
        assert all((one.where, one.printed, one.holds, one.posbias)), one.key
        assert one.paper in BIBLIOGRAPHY
        assert (one.key in about.values()) != bool(one.no_number), one.key
        for text, reading, _ in quotes_of(one):
            alone = rf"(?<![\d.,]){re.escape(text)}(?!\d|[.,]\d| %)"
            assert re.search(alone, f"{one.printed} {one.holds}"), (one.key, text)
            assert about[reading] == one.key, text
    for statement in STATEMENTS:
        assert not statement.erratum or statement.key in find_erratum(statement.erratum).posbias


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(InvalidValueError, match="did you mean 'kim2026/eq-42'"):
        find_erratum("kim2026/eq-43")


@pytest.mark.slow
def test_what_is_quoted_of_the_bundled_model_is_what_its_tables_say(tmp_path):
    """Of 32 prompts of 256 tokens, as the entries say."""
    made = reproduce("herasimchyk2026", ["section4", "table6"], out=tmp_path, models=["tiny-alibi"]).made
    order, diagonal = (
        made[name].table.query(f"source == 'measured'{which}").iloc[0]
        for name, which in (("section4", ""), ("table6", " and what == 'diagonal, mean'"))
    )
    found = {
        "herasimchyk2026/section-4: corrected": order["rate"],
        "herasimchyk2026/section-4: noise floor": order["floor"],
        "herasimchyk2026/table-6: corrected": diagonal["value"],
        "herasimchyk2026/table-6: corrected of normal numbers": diagonal["null"],
    }
    quoted = {source: parsed(text) for entry in ERRATA for text, source in entry.quotes.items()}
    for name, number in found.items():
        value, rounding = quoted[name]
        assert number == pytest.approx(value, abs=rounding), name


# --- statements in print -----------------------------------------------------------------------------------


def test_a_statement_has_one_verdict_wherever_it_is_printed(findings):
    """On the page, in `posbias verify` and in `posbias paper claims`: what it asserts, and what is printed."""
    page, lines = theorems_page(findings), findings_table(findings)
    tried = {finding.statement.key: finding for finding in findings}
    judged = list(judge_statements(["wu2025", "herasimchyk2026", "kim2026"], tried))
    assert len({claim.statement for claim in judged}) == len({*tried}) == 74
    for claim in judged:
        key, name = claim.statement, claim.claim.place
        statement = tried[key].statement
        expected = (
            AMENDED[claim.claim.provenance]
            if statement.corrected and claim.claim.sentence.find(statement.asserts or "\0") < 0
            else "holds"
        )
        assert claim.mark == expected
        assert re.search(rf"^\| `{re.escape(key)}` {re.escape(name)} \| .* \| {expected} \|", page, re.M)
        assert any(
            re.match(rf"{re.escape(f'{statement.source} {name}')} +{expected} ", line) for line in lines
        )


def test_the_pages_hold_every_statement_and_erratum(findings):
    page, errata = theorems_page(findings), errata_page()
    assert all(f"`{one.key}`" in page for one in STATEMENTS)
    assert all(f"### {one.key}\n" in errata for one in ERRATA)
    # headings as the site names them: links lead to one
    headings = {re.sub(r"[^\w -]", "", line[4:]) for line in errata.splitlines() if line.startswith("### ")}
    links = re.findall(r"\]\(errata\.md#([^)]+)\)", page)
    assert len(links) > 15
    assert {*links} <= headings


def test_what_fails_shows_the_numbers_that_refute_it(findings):
    for finding in findings:
        compared, row = finding.compared, finding.as_dict()
        assert (compared is None) == (finding.verdict == "holds") == (row["counterexample"] is None)
        if compared is not None:
            assert finding.as_printed.slack == compared < -finding.statement.tolerance
    (decay,) = (one for one in findings if one.statement.key == "wu-4.5")
    kept = math.exp(-1) / (1 + math.exp(-1))  # two tokens without content, m = 1
    assert decay.compared.value == pytest.approx(1)
    assert decay.compared.bound == pytest.approx(1 - kept)
    np.testing.assert_allclose(decay.compared.matrix, [[1, 0], [kept, 1 - kept]])
    assert [line.split() for line in findings_table([decay])[-2:]] == [["1", "0"], ["0.269", "0.731"]]


def test_every_verdict_is_reached():
    def trial(key, bound, fails_at=None):
        def margin(x, corrected=True):
            return x - (bound if corrected else 0.0)

        claim = {"corrected": "x is large"} if fails_at is not None else {}
        witness = {"x": fails_at} if fails_at is not None else None
        one = Statement(
            key, key, "s", "x", lambda s: {"x": s.real(0.0, 1.0)}, margin, witness=witness, **claim
        )
        return verify([one], instances=5)[0].mark

    marks = [trial("holds", 0.0), trial("amended", -1.0, -0.5), trial("neither", 2.0, -0.5), trial("no", 2.0)]
    assert marks == ["holds", AMENDED["paper"], "fails", "fails"]


FROM_FILES = {f"herasimchyk2026/{name}" for name in ("content-scale",)}
SINK = {"herasimchyk2026/mixing-per-token-sink", "herasimchyk2026/predictor-sink"}


@pytest.fixture(scope="module")
def compared():
    """Every reading that can be computed here, by key."""
    configs = ROLLOUT_FILES if ROLLOUT_FILES.is_dir() else None
    return {one.key: one for one in compare_readings(configs=configs)}


def quoted(one, of):
    return getattr(one, of) if of in ("published", "corrected", "difference") else one.others[of]


# --- all readings ------------------------------------------------------------------------------------------


def test_numbers_are_finite_and_readings_differ_beyond_their_error_but_for_one(compared):
    """On a model without a sink, λ by norms and by tokens are the same."""
    alike = set()
    for key, one in compared.items():
        for number in (one.published, one.corrected, one.difference, *one.others.values()):
            assert math.isfinite(number.value), key
            assert number.known, key
        assert one.difference.value == pytest.approx(one.corrected.value - one.published.value, abs=1e-12)
        if abs(one.difference.value) <= 2 * one.difference.se or one.difference.value == 0:
            alike.add(key)
    assert alike == {"herasimchyk2026/mixing-per-token"}


def test_every_quoted_number_is_the_computed_one(compared):
    """But those of measurements larger than the ones made here."""
    seen = set()
    for entry in ERRATA:
        for text, reading, of in quotes_of(entry):
            if reading not in compared:
                assert reading in FROM_FILES | SINK
                continue
            one, (value, rounding) = compared[reading], parsed(text)
            if entry.measured and "prompts of" in one.note:
                continue
            number = quoted(one, of)
            allowed = rounding * (1 + 1e-9) + 4 * number.se
            assert abs(number.value - value) <= allowed, (entry.key, text, str(number))
            seen.add(reading)
    assert len(seen) > 40


# --- other ways to the same numbers ------------------------------------------------------------------------


def raised(delta):
    """The first token's mass in the last row of three tokens, δ = 2 in the bottom layer."""

    def row(weights, own, at):
        weights = [weight * math.exp(own) ** (place == at) for place, weight in enumerate(weights)]
        return [weight / sum(weights) for weight in weights]

    bottom = [row([1.0], 2, 0), row([0.5, 0.5], 2, 1), row([0.49, 0.5, 0.01], 2, 2)]
    top = row([math.exp(-9), 1.0, 1.0], delta, 2)
    return sum(weight * keys[0] for weight, keys in zip(top, bottom, strict=True))


def stepped():
    """P_(21)1 of 20 layers of weights e^(200·cos(jπ/20)) at distance j."""
    weights = np.exp(200 * np.cos(np.subtract.outer(np.arange(21), np.arange(21)) * math.pi / 20) - 200)
    kernel = np.tril(weights) / np.tril(weights).sum(axis=1, keepdims=True)
    return np.linalg.matrix_power(kernel, 20)[-1, 0]


@pytest.mark.parametrize(
    ("key", "printed", "true"),
    [
        ("wu2025/appendix-b.2", 0.5**2, 0.5),
        ("wu2025/appendix-c", 1.0, 0.0198 / 0.4902),
        ("wu2025/lemma-4.4", 1 / (1 + math.exp(-1)), 1.0),
        ("wu2025/theorem-4.5", 1 / (1 + math.exp(-1)), 1.0),
        ("wu2025/lemma-4.6", math.exp(0.1 - 5 - 0.1 * math.pi**2) / 2, 1 / (1 + math.exp(10))),
        ("wu2025/lemma-i.1", math.exp(0.2 - 10 - 0.2 * math.pi**2) / 2, 1 / (1 + math.exp(20))),
        ("wu2025/theorem-4.7", math.comb(39, 20) * math.exp(-100), stepped()),
        ("wu2025/theorem-i.2", math.comb(39, 20) * math.exp(-100), stepped()),
        ("herasimchyk2026/proposition-4.5", raised(0), raised(3)),
        ("herasimchyk2026/appendix-a.1.2", 0.0, 1.0),
        ("herasimchyk2026/appendix-a.1.4", 0.0, 0.5),
        ("herasimchyk2026/lemma-5.3-i", 2.0, 1.5 * (9 / 8) ** 20),
        ("herasimchyk2026/lemma-5.3-ii", math.exp(-0.02) / 2, 1 / (1 + math.exp(5))),
        ("herasimchyk2026/section-5.1", 2.0, 1.25**20),
        (
            "herasimchyk2026/theorem-5.4-ii-encodings",
            (1 - math.exp(-0.0008) / 2) ** 10,
            1 / math.prod(1 + math.exp(-t) for t in range(1, 11)),
        ),
        ("herasimchyk2026/theorem-5.4-ii", (1 - math.exp(-0.18) / 4) ** 60, 0.18249551842986955),
        ("herasimchyk2026/theorem-5.4-ii-window", math.exp(-3 * 0.5 * 0.5 * 200), 0.75**200),
    ],
)
def test_counterexamples_have_the_numbers_that_plain_arithmetic_gives(compared, key, printed, true):
    one = compared[key]
    assert [one.published.value, one.corrected.value] == pytest.approx([printed, true], rel=2e-5)


def test_the_data_are_as_the_readings_say(compared):
    task = RetrievalTask(embedding="variance")
    tests = novel_sequences(task, make_world(task, [0]), 1, 4000).paired(0, 7)
    share = float(tests.informative.double().mean())
    gap = compared["wu2025/uninformative"].corrected.value
    assert gap == pytest.approx(largest_gap(task), rel=1e-12)
    assert abs(share - gap) < 4 * math.sqrt(gap * (1 - gap) / 4000)
    for embedding, of in (("variance", "corrected"), ("deviation", "published")):
        drawn = RetrievalTask(embedding=embedding)
        items = novel_sequences(drawn, make_world(drawn, [0]), 1, 500).asking().tokens[0, :, 0].double()
        length = float(items.norm(dim=-1).square().mean().sqrt())
        assert length == pytest.approx(quoted(compared["wu2025/embeddings"], of).value, rel=0.02)


def test_expected_gaps_are_those_of_the_networks_own_architectures(compared):
    from dense import dense_influence

    from posbias.training.network import ENCODINGS

    for key, published, corrected in (
        ("pe-decay", Network(), Network(positional=ENCODINGS["decay"])),
        ("not-res", Network(residual=True), Network()),
    ):
        for of, network in (("published", published), ("corrected", corrected)):
            mass = dense_influence(network.architecture(), 17)
            largest = largest_gap(RetrievalTask())
            gap = (mass[1] - mass[15]) / (mass[1] + mass[15]) * largest
            assert quoted(compared[f"wu2025/{key}"], of).value == pytest.approx(gap, rel=1e-9)


def test_simulated_and_integrated_numbers_side_with_the_correction(compared):
    """The truth is nearer to the corrected number than to the published one, wherever it is known."""
    known = 0
    for one in compared.values():
        for name in ("integrated", "simulated", "drawn", "from Eq 37"):
            if name in one.others:
                truth, known = one.others[name].value, known + 1
                assert abs(one.corrected.value - truth) < abs(one.published.value - truth), one.key
    assert known >= 7


# --- what is asked -----------------------------------------------------------------------------------------


def test_readings_are_found_by_key_paper_and_erratum():
    assert find_readings() == [*READINGS] == find_readings([])
    assert {one.erratum.paper for one in find_readings("kim2026")} == {"kim2026"}
    both = find_readings(["kim2026/eq-42", "herasimchyk2026/content-scale"])
    names = ("herasimchyk2026/content-scale", "herasimchyk2026/content-scale-measured", "kim2026/eq-42")
    assert tuple(one.key for one in both) == names


def test_what_is_asked_for_by_name_and_cannot_be_had_is_an_error():
    with pytest.raises(UnavailableError, match="needs a measurement of smollm2-135m"):
        compare_readings(["herasimchyk2026/predictor-sink"])


def test_measurements_come_from_the_results_the_largest_first(tmp_path):
    cells = tmp_path / "herasimchyk2026" / "cells"
    for text, prompts in (("bundled", 4), ("bundled", 12), ("bundled-scrambled", 20)):
        path = cells / f"tiny-alibi-{text}-256x{prompts}-{prompts:012}.nc"
        save_measurement(measurement("tiny-alibi", prompts=prompts), path)
    (cells / f"tiny-alibi-bundled-256x99-{'2' * 12}.nc").write_bytes(b"damaged")
    with logged() as said:
        (one,) = compare_readings("herasimchyk2026/mixing-per-token", results=tmp_path)
    assert "12 prompts" in one.note
    assert one.difference.value == pytest.approx(-0.1)
    (refused,) = (line for line in said if line.endswith("; not used"))
    assert "256x99" in refused
