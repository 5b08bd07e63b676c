"""How the site is made: `make docs`. Warnings are errors; nothing is fetched from the network."""

import importlib
import inspect
import re
import shutil
from pathlib import Path

from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.util.inspect import stringify_signature

import posbias
from posbias.profiles.measurements import QUANTITIES

MADE = Path(__file__).with_name("made")
"""What `make pages` wrote: no `html_extra_path`, in which Sphinx would look for no documents."""

project = "posbias"
author = "the posbias authors"
project_copyright = "the posbias authors, MIT licence"
version = release = posbias.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"posbias {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_output_stderr = "remove"
nb_render_markdown_format = "gfm"

default_role = "code"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False


def public_names(package, rooms):
    """Directives for the names of a package's `__init__.pyi`, of all or some modules; each once."""
    stub = Path(posbias.__file__).parents[1].joinpath(*package.split("."), "__init__.pyi").read_text("utf-8")
    for module, name in re.findall(r"^from \.(\S*) import (\w+) as \w+$", stub, re.M):
        value = getattr(importlib.import_module(f"{package}.{module}".rstrip(".")), name)
        elsewhere = package != "posbias" and hasattr(posbias, name)
        if (rooms and not f"{module}.".startswith(rooms)) or elsewhere or inspect.ismodule(value):
            continue
        if inspect.isclass(value):
            yield f".. auto{'exception' if issubclass(value, Exception) else 'class'}:: {package}.{name}"
        elif inspect.isroutine(value):
            yield f".. autofunction:: {package}.{name}"
        else:
            yield f".. autodata:: {package}.{module}.{name}\n   :no-value:"


def adapt_page(app, docname, source):
    """What a page is on the site: `{public-names} PACKAGE MODULE …` is what autodoc makes of those names,
    `{quantities}` the variables of a measurement, a link to a file outside the documents is the file's name, and
    nothing is in made/ before a command made it.
    """

    def directives(line):
        package, *modules = line[0].split()[1:]
        names = public_names(package, tuple(f"{module}." for module in modules))
        return "\n".join(["```{eval-rst}", *names, "```"])

    text = re.sub(r"^{public-names} .*$", directives, source[0], flags=re.M)
    listed = [f"- `{name}` ({', '.join(one.dimensions)}): {one.what}" for name, one in QUANTITIES.items()]
    text = text.replace("{quantities}", "\n".join(listed))
    if "/" not in docname:
        text = re.sub(r"\[([^]]+)\]\(\.\./([^)#]+)[^)]*\)", r"\1 (`\2`)", text)
    if not MADE.exists():
        text = re.sub(r"^```\{toctree\}\n:caption: Made by commands\n.*?^```\n", "", text, flags=re.S | re.M)
    source[0] = text


def as_restructured_text(app, what, name, obj, options, lines):
    """Docstrings are plain text with `code` and indented examples; what else reStructuredText has is text."""
    text = "\n".join(lines)
    parts = re.split(r"(`+[^`]*`+)", text)
    parts[::2] = [re.sub(r"([\\*|_])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [rf"\ ``{part.strip('`')}``\ " for part in parts[1::2]]
    paragraphs = re.split(r"\n{2,}", "".join(parts))
    originals = re.split(r"\n{2,}", text)
    lines[:] = []
    for paragraph, original in zip(paragraphs, originals, strict=True):
        example = original.startswith("    ")
        lines += ["::", "", *original.split("\n"), ""] if example else [*paragraph.split("\n"), ""]


def plain_signature(app, what, name, obj, options, signature, returns):
    """Names and defaults alone where types would be what pydantic checks of a field."""
    if not signature or not re.search(r"Annotated|<factory>", signature):
        return None
    given = inspect.signature(obj)
    named = [one for one in given.parameters.values() if one.name not in ("self", "cls")]
    plain = stringify_signature(given.replace(parameters=named), show_annotation=False)
    return plain.replace("<factory>", "…"), returns


def print_run_times(app, error):
    """How long each notebook took; on the page of notebooks stands the same as a table."""
    for name in sorted(app.env.found_docs):
        if run := NbMetadataCollector.get_exec_data(app.env, name):
            print(f"{name}: {run['runtime']:.0f} s")


def link_pages(app, error):
    """Figures and numbers come along; the page of all three papers links to the site's own pages."""
    if MADE.exists():
        shutil.copytree(MADE, app.outdir, ignore=shutil.ignore_patterns("*.md"), dirs_exist_ok=True)
    page = Path(app.outdir, "papers.html")
    if page.exists():
        linked = re.sub(r'href="([a-z0-9]+/[^"#:]+)\.md"', r'href="made/\1.html"', page.read_text("utf-8"))
        page.write_text(linked, "utf-8")


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", adapt_page)
    app.connect("build-finished", print_run_times)
    app.connect("build-finished", link_pages)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("autodoc-process-docstring", as_restructured_text)
