"""The command line: ``vastgp fit | predict | evaluate | info | report | fill | map | demo``.

Each command is a module of this package. All of them import what they need when they run, so that
``vastgp --help`` answers at once.
"""

from vastgp.cli import demo, evaluate, fill, fit, info, map_stations, predict, report
from vastgp.cli.app import app

__all__ = ["app"]

app.command("fit")(fit.fit)
app.command("predict")(predict.predict)
app.command("evaluate")(evaluate.evaluate)
app.command("info")(info.info)
app.command("report")(report.report)
app.command("fill")(fill.fill)
app.command("map")(map_stations.map_stations)
app.command("demo")(demo.demo)
