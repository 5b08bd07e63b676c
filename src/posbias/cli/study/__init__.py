"""`posbias study`: studies of files, and those of the papers."""

from cyclopts import App

study = App(
    name="study",
    help="Run studies: one question, many cells, every result kept in a file of its own.",
    help_format="plaintext",
)
for name in ("run", "status", "show", "export"):
    study.command(f"posbias.cli.study.{name}:{name}", name=name)
