"""The command line: ``vastgp fit | predict | evaluate | info | fill | demo``.

Each command is a module of this package. All of them import what they need when they run, so that
``vastgp --help`` answers at once.
"""

from vastgp.cli.app import app

__all__ = ["app"]
