"""What the code computes is what tests/reference.json has: the guard of every redesign."""

import json

import pytest
from command import called
from project import ROOT
from reference import FILE, SECTIONS, computed

KEPT = json.loads(FILE.read_text())


def close(value, rtol):
    """A number within the tolerance, anything else as it is; lists and tables element by element."""
    if isinstance(value, list):
        return [close(one, rtol) for one in value]
    return pytest.approx(value, rel=rtol, abs=1e-12, nan_ok=True) if isinstance(value, float) else value


@pytest.mark.parametrize("section", SECTIONS)
def test_numbers_are_those_of_the_reference(section):
    found, kept = computed(section), dict(KEPT[section])
    assert found.keys() == kept.keys()
    if section == "training":
        assert found.pop("loss by network") == close(kept.pop("loss by network"), 1e-3)
        for name, (value, error) in found.items():
            assert abs(value - kept[name][0]) <= 4 * (error**2 + kept[name][1] ** 2) ** 0.5, name
        return
    wrong = {
        key: (found[key], kept[key]) for key in kept if found[key] != close(kept[key], SECTIONS[section][1])
    }
    assert not wrong


@pytest.mark.slow
def test_claims_of_the_papers_are_judged_as_on_the_published_page(tmp_path):
    """From records: Kim et al. at the paper's effort, Herasimchyk et al. at the quick one, Wu et al. trained."""
    for paper in ("kim2026", "herasimchyk2026"):
        (tmp_path / paper).mkdir()
        records = json.loads((ROOT / "papers/src/posbias_papers" / paper / "records.json").read_text())
        for name, record in records.items():
            (tmp_path / paper / f"{name}.json").write_text(json.dumps(record))
    found = json.loads(called("paper", "claims", "--out", tmp_path, "--json").stdout)["claims"]
    claims = {one["id"]: one for one in found if one["provenance"] == "paper" and not one["alias_of"]}
    assert claims.keys() == KEPT["claims"].keys()
    for key, (verdict, number, error, effort, *about) in KEPT["claims"].items():
        claim = claims[key]
        assert [claim["place"], claim["strength"], claim["scope"]] == about, key
        assert claim["verdict"] == verdict, key
        if claim["effort"] == effort:
            assert [claim["number"], claim["se"]] == [close(number, 1e-9), close(error, 1e-9)], key
