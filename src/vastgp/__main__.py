"""``python -m vastgp``: the command, where its script is not on the path."""

from vastgp.cli import app

if __name__ == "__main__":
    app()
