"""A fitted `TableEncoder` as data that JSON holds without loss, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vastgp.auto.columns import Column
from vastgp.auto.space import plain_space
from vastgp.auto.values import level_text

_VERSION = 1


def state_of(
    params: Mapping[str, Any], columns: Sequence[Column], named: bool, names: Sequence[str]
) -> dict[str, Any]:
    """Return the arguments and the columns of an encoder, whether these have names of their own, and which, as data.

    The names are those of the table in its order, of which the columns of a place are one here.
    """
    return {
        "version": _VERSION,
        "params": plain_params(params),
        "named": named,
        "names": list(names),
        "columns": [column.to_state() for column in columns],
    }


def plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an encoder as data: levels may have been given as any sequence."""
    orders = params["ordered"]
    if orders is not None:
        orders = {name: list(map(level_text, order)) for name, order in orders.items()}
    return {
        "max_levels": int(params["max_levels"]),
        "squash": bool(params["squash"]),
        "ordered": orders,
        "target_mean": bool(params["target_mean"]),
        "space": plain_space(params["space"]),
    }


def read_state(
    state: Any,
) -> tuple[dict[str, Any], tuple[Column, ...], bool, list[str] | None]:
    """Return arguments, columns, whether they have names, and these (None of an older file), as `state_of` has them."""
    version = state.get("version") if isinstance(state, Mapping) else None
    if version != _VERSION:
        raise ValueError(
            f"The state of a TableEncoder has version {version!r}; this program reads {_VERSION}. Fit the "
            "encoder again, or use the program that wrote it."
        )
    columns = tuple(Column.from_state(column) for column in state["columns"])
    return state["params"], columns, state["named"], state.get("names")
