"""The front door: a person's table as it is, and a model with calibrated intervals and a report out."""

from vastgp.auto.columns import Column
from vastgp.auto.encoder import TableEncoder

__all__ = ["Column", "TableEncoder"]
