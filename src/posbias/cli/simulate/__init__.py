"""`posbias simulate`: controlled cases, simulated."""

from cyclopts import App

simulate = App(name="simulate", help="Simulate position bias in controlled cases.", help_format="plaintext")
simulate.command("posbias.cli.simulate.layernorm:layernorm", name="layernorm")
