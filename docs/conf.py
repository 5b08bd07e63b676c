"""How the site is made: `make docs`. Warnings are errors; nothing is fetched from the network."""

import inspect
import re
from pathlib import Path

from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.util.inspect import stringify_signature

from posbias import __version__

project = "posbias"
author = "the posbias authors"
project_copyright = "the posbias authors, MIT licence"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"posbias {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_extra_path = [path for path in ("made",) if Path(path).exists()]
# nothing is in made/ before `make pages`
suppress_warnings = ["toc.empty_glob"]
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
    """The page of all three papers, where `make pages` made it, links to the site's own pages."""
    page = Path(app.outdir, "papers.html")
    if page.exists():
        linked = re.sub(r'href="([a-z0-9]+/[^"#:]+)\.md"', r'href="made/\1.html"', page.read_text("utf-8"))
        page.write_text(linked, "utf-8")


def setup(app):
    """Called by Sphinx."""
    app.connect("build-finished", print_run_times)
    app.connect("build-finished", link_pages)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("autodoc-process-docstring", as_restructured_text)
