"""The front door: a person's table as it is."""

from vastgp.auto.columns import Column
from vastgp.auto.encoder import TableEncoder

__all__ = ["Column", "TableEncoder"]
