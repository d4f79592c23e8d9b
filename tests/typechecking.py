"""How annotations of vastgp are checked while the tests run."""

from beartype import BeartypeConf, beartype

# PEP 484's numeric tower: an int is welcome where a float is asked for, as every reader of `noise: float = 1` expects.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
