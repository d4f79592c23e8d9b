"""The front door on a hundred tables that nobody chose, and a hundred of classes: one fit, one JSON line.

    VASTGP_RAW=/tmp/raw python benchmarks/strangers.py --budget 15 60 --missing
    VASTGP_RAW=/tmp/raw python benchmarks/strangers.py --table stranger-classes --budget 15 --missing
    python benchmarks/strangers.py --write    # results/strangers.md and results/strangers.png from the lines

The words are those of `anytime.py`, the tables those of `stranger_tables.py`, the fits and their lines those of
`front_door.py`. Peers write lines beside these: `peers/front_door_peers.py` with `--out results/strangers.jsonl`.
"""

from __future__ import annotations

from front_door import program
from strangers_report import OUT, write_all

if __name__ == "__main__":
    program(__doc__, OUT, "stranger", 15.0, write_all)
