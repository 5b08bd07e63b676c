"""`posbias models families`: the table as data."""

import json
import subprocess
import sys


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
