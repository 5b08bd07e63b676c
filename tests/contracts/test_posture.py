"""What reads foreign files says in its own words, at each call, that it runs none of their code."""

import ast
from pathlib import Path

import pytest

import posbias

SOURCES = sorted(Path(posbias.__file__).parent.rglob("*.py"))
TRUSTED = "trust_remote_code"
NEEDED = {
    "from_pretrained": {TRUSTED},
    "from_config": {TRUSTED},
}
"""Functions that may run foreign code → what each call passes."""
FORBIDDEN = {
    *(
        "pickle.load",
        "pickle.loads",
        "marshal.loads",
        "shelve.open",
        "joblib.load",
        "torch.load",
        "torch.jit.load",
    ),
    *("yaml.unsafe_load", "yaml.full_load", "eval", "exec", "os.system"),
}
LOADED = {"yaml.load": {"Loader"}, "np.load": {"allow_pickle"}}
"""Functions that are safe with an argument alone."""


def calls(path):
    """Every call of a file: the function's dotted name as it is written, its keywords, and its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            keywords = {word.arg: word.value for word in node.keywords if word.arg is not None}
            yield ast.unparse(node.func), keywords, node


def faults(path):
    for name, keywords, node in calls(path):
        last = name.rpartition(".")[2]
        where = f"{path.name}:{node.lineno}: {name}"
        if name in FORBIDDEN:
            yield f"{where} is not called"
        for needed in (NEEDED.get(last, set()) | LOADED.get(name, set())) - keywords.keys():
            yield f"{where} without {needed}="
        given = keywords.get(TRUSTED)
        if isinstance(given, ast.Constant) and given.value is not False:
            yield f"{where} trusts"
        if "shell" in keywords:
            yield f"{where} through a shell"
        weights = keywords.get("weights_only")
        if weights is not None and not (isinstance(weights, ast.Constant) and weights.value is True):
            yield f"{where} reads more than weights"


def test_no_call_runs_what_a_file_says():
    assert [fault for path in SOURCES for fault in faults(path)] == []


def test_models_are_read_as_weights_alone():
    """The calls that read a model's weights, rather than its configuration or its tokenizer."""
    read = [
        keywords
        for path in SOURCES
        for name, keywords, _ in calls(path)
        if name.endswith("from_pretrained") and "output_loading_info" in keywords
    ]
    assert read
    assert all("weights_only" in keywords for keywords in read)


@pytest.mark.parametrize(
    "line",
    [
        "AutoModel.from_pretrained(folder)",
        "AutoModel.from_pretrained(folder, **where)",
        "AutoModel.from_pretrained(folder, trust_remote_code=True)",
        "torch.load(path)",
        "yaml.load(text)",
        "np.load(path)",
        "subprocess.run(line, shell=True)",
        "kind.from_pretrained(folder, trust_remote_code=False, weights_only=False)",
        "pickle.loads(text)",
    ],
)
def test_a_call_that_would_is_found(line, tmp_path):
    (tmp_path / "module.py").write_text(line)
    assert [*faults(tmp_path / "module.py")]
