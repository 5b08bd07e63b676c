"""What the package may load, and when."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "matplotlib", "xarray", "pandas", "netCDF4", "jinja2")


def loaded_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "code",
    [
        "import posbias",
        "import posbias.measurement, posbias.reports, posbias.cli, posbias.simulation, posbias.training",
        "import posbias_papers, posbias.retrieval",
        "import posbias; posbias.influence(posbias.Architecture(2), 8)",
        "import posbias; posbias.load_architecture; posbias.Profile; posbias.load_profile; posbias.predictions",
    ],
)
def test_light_parts_load_nothing_heavy(code):
    assert not loaded_after(code) & set(HEAVY)


def test_importing_the_package_does_no_work():
    assert not loaded_after("import posbias") & {"numpy", "numba", "pydantic", "scipy"}


@pytest.mark.parametrize(
    "words", [["--help"], ["predict", "--help"], ["paper", "--help"], ["train", "--help"]]
)
def test_help_loads_nothing_heavy(words):
    """A page of help costs little more than the library that prints it."""
    code = f"from posbias.cli import main\ntry: main({words})\nexcept SystemExit: pass"
    assert not loaded_after(code) & {*HEAVY, "numba", "scipy", "numpy", "pydantic", "yaml", "tqdm"}


def test_every_public_name_is_there_and_documented():
    import posbias

    for name in posbias.__all__:
        public = getattr(posbias, name)
        if callable(public):
            assert public.__doc__, name
    with pytest.raises(AttributeError, match="no_such_name"):
        posbias.no_such_name  # noqa: B018
    assert set(posbias.__all__) <= set(dir(posbias))


TORCHLESS = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "tokenizers", "accelerate"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import posbias
heavy = ("posbias.measurement.", "posbias.training.", "posbias.retrieval.local", "posbias.retrieval.local")
for module in pkgutil.walk_packages(posbias.__path__, "posbias."):
    optional = module.name.startswith((*heavy, "posbias.ordering.adapters.")) or module.name.endswith("__main__")
    if not optional:
        importlib.import_module(module.name)
        print(module.name)
"""


def test_everything_but_measuring_and_training_is_there_without_torch():
    done = subprocess.run([sys.executable, "-c", TORCHLESS], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) > 100
