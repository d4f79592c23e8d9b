"""Rows in: arrays, tables and files, their scaling, their minibatches, and the file format of models."""

from vastgp.data.archive import read_archive, write_archive
from vastgp.data.exposure import Exposure
from vastgp.data.minibatch import chunk_of_minibatches, minibatch_indices
from vastgp.data.open import as_rows
from vastgp.data.own_noise import OwnNoise
from vastgp.data.repetitions import Places, Repetitions, nearly_repeated, repeated
from vastgp.data.row_weights import RowWeights
from vastgp.data.rows import Rows
from vastgp.data.scaling import Standardizer
from vastgp.data.split import held_out_indices, without

__all__ = [
    "Exposure",
    "OwnNoise",
    "Places",
    "Repetitions",
    "RowWeights",
    "Rows",
    "Standardizer",
    "as_rows",
    "chunk_of_minibatches",
    "held_out_indices",
    "minibatch_indices",
    "nearly_repeated",
    "read_archive",
    "repeated",
    "without",
    "write_archive",
]
