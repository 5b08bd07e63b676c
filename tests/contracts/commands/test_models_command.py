"""`posbias models families`: the table as data, and a check that really runs."""

import json
import subprocess
import sys

import pytest


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "posbias", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_families_are_listed_as_json():
    done = run("models", "families", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    rows = {row["model_type"]: row for row in json.loads(done.stdout)["families"]}
    assert rows["llama"] == {
        "model_type": "llama",
        "attention": "eager",
        "attentions": ["eager", "sdpa"],
        "positional": "rotary",
        "causal": True,
        "parallel": False,
        "window": False,
        "sinks": False,
        "soft_cap": False,
        "defects": [],
        "checked": True,
        "checks": [],
    }
    assert rows["falcon"]["attention"] == "sdpa"
    assert rows["falcon"]["defects"] == ["eager counts ALiBi twice, in the mask and in the scores"]
    assert rows["bert"]["causal"] is False
    assert {"bloom", "mpt", "gpt_oss", "gemma2", "opt"} <= set(rows)


def test_families_are_listed_without_loading_torch():
    script = (
        "import sys, posbias.cli\n"
        "try: posbias.cli.main(['models', 'families'])\n"
        "except SystemExit: pass\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["family", "positions", "attention", "also"]
    assert any(line.startswith("falcon") and "counts ALiBi twice" in line for line in lines)
    assert lines[-1] == "set()"


@pytest.mark.slow
def test_a_check_proves_what_it_shows():
    """The real check of two rows, and the same with a row that claims too much."""
    script = (
        "import sys, posbias.cli\n"
        "from posbias.measurement.models import families as table\n"
        "kept = {name: table.FAMILIES[name] for name in ('gpt2', 'bloom')}\n"
        "if sys.argv[1] == 'wrong': kept['gpt2'] = table.Family('gpt2', 'rotary')\n"
        "table.FAMILIES.clear(); table.FAMILIES.update(kept)\n"
        "posbias.cli.main(['models', 'families', '--check', '--json'])"
    )

    def check(which):
        command = [sys.executable, "-c", script, which]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    right, wrong = check("right"), check("wrong")
    assert right.returncode == 0
    for row in json.loads(right.stdout)["families"]:
        assert row["checked"] is True
        assert all(0 <= found["max_deviation"] < 1e-5 for found in row["checks"])
    assert wrong.returncode == 2
    verdicts = {row["model_type"]: row["checked"] for row in json.loads(wrong.stdout)["families"]}
    assert verdicts == {"gpt2": False, "bloom": True}
    assert wrong.stderr.splitlines()[-1].startswith("posbias: model: the check failed for gpt2")
