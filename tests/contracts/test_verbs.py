"""Verbs are functions whatever was imported before; names of 0.1 work, and say where they are now."""

import ast
import importlib
import inspect
import pickle
import subprocess
import sys

import pytest
from project import ROOT

import posbias
from posbias import deprecated

CALLS = {
    "predict": "posbias.predict(posbias.Architecture(2), 8).mass.sum()",
    "compare": "posbias.compare(profile, profile).agreements['p'].spearman.value",
    "measure": "(measured := posbias.measure('tiny-nope', tokens=16, prompts=2)).attrs['model']",
    "report": "posbias.report(measured, tempfile.mkdtemp()).page.name",
    "retrieve": "posbias.retrieve('tiny-nope', job).attrs['posbias_kind']",
    "simulate": "posbias.simulate(RecencyModel(dimension=4), 100).samples",
    "train": "posbias.train(experiment, device='cpu').cost['device']",
}
SETTING = """
import contextlib, importlib, pkgutil, tempfile
import posbias, posbias.errors
for module in pkgutil.walk_packages(posbias.__path__, "posbias."):
    # an adapter whose framework is absent says so
    with contextlib.suppress(posbias.errors.MissingPackageError):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
from posbias.retrieval.job import retrieval_job
from posbias.simulation import RecencyModel
from posbias.training import Experiment, Network
job = retrieval_job(prompts=2, positions=3, pairs=4)
profile = posbias.predict(posbias.Architecture(2), 8)
experiment = Experiment(network=Network(depth=1), seeds=(0,), iterations=1)
"""

OLD_CALLBACKS = """
import warnings
told, heard = [], []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    posbias.measure("tiny-nope", tokens=8, prompts=1, progress=lambda *now: told.append(now), say=heard.append)
print(*(word for pair in told for word in pair), any("measuring" in line for line in heard))
print(sum("on_event" in str(one.message) for one in caught))
"""


def run(code: str) -> list[str]:
    program = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_verbs_work_when_every_module_was_imported():
    """And callbacks of 0.1 are called, with a warning."""
    answers = run(SETTING + "".join(f"print({call})\n" for call in CALLS.values()) + OLD_CALLBACKS)
    assert answers[:7] == ["1.0", "1.0", "tiny-nope", "report.html", "retrieval", "100", "cpu"]
    assert answers[7:] == ["0", "1", "1", "1", "True", "1"]


PLACES = [f"posbias.{name}" for name in ("theory", "study", "retrieval")]
PLACES += [place for place, _ in deprecated.VERBS.values()]
PACKAGES_AND_OLD_NAMES = f"""
import importlib, warnings
import posbias
for name in {PLACES}:
    importlib.import_module(name)
print(all(callable(getattr(posbias, verb)) for verb in {[*CALLS]}))
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    from posbias.measure import *
    from posbias.measure import load_model, Request
    import posbias.measure
    from posbias.train.kernels import trained_rollout
    posbias.measure.measure
print(posbias.measure.__name__, load_model.__name__, len(heard) > 20)
print({{warning.filename for warning in heard}})
"""


@pytest.fixture(scope="module")
def answers():
    """One process for two tests: importing what measures takes seconds."""
    return run(PACKAGES_AND_OLD_NAMES)


def test_verbs_are_functions_when_the_packages_that_do_their_work_were_imported(answers):
    assert answers[0] == "True"


def test_every_verb_of_the_table_is_called():
    assert {old.removeprefix("posbias.") for old in deprecated.VERBS} <= set(CALLS) <= set(posbias.__all__)


@pytest.mark.parametrize("old", deprecated.VERBS)
def test_an_old_package_is_the_verb_and_the_module(old):
    place, name = deprecated.VERBS[old]
    verb, package = getattr(posbias, old.removeprefix("posbias.")), importlib.import_module(place)
    function = getattr(package, name)
    assert importlib.import_module(old) is verb
    assert (verb.__doc__, inspect.signature(verb)) == (function.__doc__, inspect.signature(function))
    assert pickle.loads(pickle.dumps(verb)) is verb
    with pytest.warns(DeprecationWarning, match=rf"{old}\.{name} is now {place}\.{name}"):
        assert getattr(verb, name) is function
    with pytest.raises(AttributeError):
        verb.no_such_name  # noqa: B018


@pytest.mark.parametrize("old", sorted(set(deprecated.MODULES) - set(deprecated.VERBS)))
def test_an_old_module_gives_what_the_new_one_has(old):
    module, new = importlib.import_module(old), importlib.import_module(deprecated.MODULES[old])
    for name in (name for name in vars(new) if not name.startswith("_")):
        with pytest.warns(DeprecationWarning, match=deprecated.MODULES[old]):
            assert getattr(module, name) is getattr(new, name)


def test_every_public_name_of_0_1_is_given_with_a_warning(answers):
    assert answers[1:] == ["posbias.measure", "load_model", "True", "{'<string>'}"]
    for name in ("posbias.measure.no_such_module", "posbias.no_such_module"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


def test_nothing_of_ours_uses_an_old_name():
    """Whoever runs a command is not warned of names that only we can change."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and path.name != "deprecated.py":
                assert deprecated.new_place(node.module) is None, (path, node.module)
                old = {alias.name for alias in node.names} & {*deprecated.NAMES.get(node.module, ())}
                assert not old, (path, node.module, old)


RENAMED = """
import warnings
import posbias
from posbias.verify import STATEMENTS, Finding, Trial, select
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    profile = posbias.Profile([0.5, 0.4], lost=0.1, about={"a": 1})
    print(profile.lost, profile.missing_mass, profile.about == profile.attrs)
    (statement,) = select(STATEMENTS, ["wu-4.5"])
    print(statement.published is statement.as_printed, statement.amended is statement.corrected)
    finding = Finding(statement, published=(trial := Trial(3, 0.5)), amended=None)
    print(finding.published is trial, finding.amended, Finding(statement, trial, None) == finding)
print(*(str(one.message).split(";")[0].replace(" is now ", "→") for one in told))
"""


def test_renamed_fields_are_read_and_taken_with_a_warning():
    """In a process of its own: here the shapes of arguments are checked before a decorator sees them."""
    lost, about = "Profile.lost→Profile.missing_mass", "Profile.about→Profile.attrs"
    readings = [
        f"Statement.{one}" for one in ("published→Statement.as_printed", "amended→Statement.corrected")
    ]
    readings += 2 * [one.replace("Statement", "Finding") for one in readings]
    answers = ["0.1", "0.1", "True", "True", "True", "True", "None", "True"]
    assert run(RENAMED) == [*answers, lost, about, lost, about, *readings]


@pytest.mark.parametrize(
    ("package", "name"), [(p, n) for p, names in deprecated.NAMES.items() for n in names]
)
def test_an_old_name_is_the_new_thing(package, name):
    place = deprecated.NAMES[package][name]
    place = place if place.startswith("posbias.") else f"{package}.{place}"
    module, _, attribute = place.rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{package}.{name} is now {module}.{attribute}"):
        found = getattr(importlib.import_module(package), name)
    if (package, name) not in deprecated.CALLS:
        assert found is getattr(importlib.import_module(module), attribute)


def test_figures_and_groups_of_wu_are_what_they_were():
    from posbias.papers import wu2025

    with pytest.warns(
        DeprecationWarning, match=r"wu2025\.(FIGURES|GROUPS) is now posbias\.papers\.wu2025\.STUDIES"
    ):
        figures, groups = wu2025.FIGURES, wu2025.GROUPS
    assert groups == {"fig19": ("fig15", "fig16", "fig17", "fig18"), "fig24": ("fig21", "fig22", "fig23")}
    assert [*figures] == [name for name in wu2025.STUDIES if name not in groups]
    assert figures["fig2"] is wu2025.STUDIES["fig2"]


def test_the_unions_are_namespaces():
    assert posbias.masks.Causal is posbias.Causal
    assert posbias.encodings.RoPE is posbias.RoPE
    assert posbias.mixing.PreNormInit is posbias.PreNormInit
