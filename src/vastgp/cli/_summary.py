"""What an estimator of rows learned, as plain data and on the terminal."""

from __future__ import annotations

from typing import Any

_SHOWN = 30  # features in the table; --json has all


def given_parameters(model: Any) -> dict[str, str]:
    """Arguments of an estimator that differ from their default."""
    defaults = type(model)().get_params(deep=False)
    return {
        name: repr(value)
        for name, value in model.get_params(deep=False).items()
        if name != "verbose" and repr(value) != repr(defaults.get(name))
    }


def summary(model: Any, names: list[str] | None = None) -> dict[str, Any]:
    """What a fitted estimator learned, as plain data.

    Parameters
    ----------
    model : estimator
    names : list of str, optional
        Of its inputs; its own without.

    Returns
    -------
    dict
        ``method``, ``solver`` and ``num_basis`` and ``diagnosis`` of methods that have them,
        ``parameters`` (those that differ from the default), ``target``, ``features``,
        ``training_rows``, ``kernel``, ``components`` (see `components`), ``likelihood``, ``noise_std`` in target units
        where it is Gaussian, ``signal_std`` (prior standard deviation of the function) with ``signal_units``,
        ``converged``, ``stop_reason``, ``steps`` and ``seconds``, ``answer`` and ``scores`` (whose answer was kept, and
        what was compared), ``spent`` (seconds by phase, right after a fit).
    """
    import numpy as np

    from vastgp.cli._model import feature_names, target_name

    names = feature_names(model) if names is None else names
    x_scale = np.broadcast_to(np.asarray(model.standardizer_.x_scale, dtype=float), (len(names),))
    return {
        "method": type(model).__name__,
        "solver": getattr(model, "solver_", None),
        "num_basis": getattr(model, "num_basis_", None),
        "diagnosis": getattr(model, "diagnosis_", {}),
        "parameters": given_parameters(model),
        "target": target_name(model),
        "features": names,
        "training_rows": int(model.standardizer_.n_rows),
        "kernel": None if model.kernel_ is None else repr(model.kernel_),
        "components": components(model.kernel_, x_scale),
        "likelihood": repr(model.likelihood_),
        "noise_std": _noise_std(model),
        "signal_std": None if model.kernel_ is None else _variance(model.kernel_, x_scale) ** 0.5,
        # counts and classes have a function of their own scale
        "signal_units": "in target units"
        if model.likelihood_.scales_target
        else "in units of the function",
        "converged": bool(model.converged_),
        "stop_reason": model.stop_reason_,
        "steps": int(model.n_iter_),
        "seconds": float(model.fit_seconds_),
        "answer": model.answer_,
        "scores": model.scores_,
        "spent": model.history_.spent,
    }


def components(kernel: Any, x_scale: Any) -> list[dict[str, Any]]:
    """What the parts of a kernel say of each input.

    Parameters
    ----------
    kernel : Kernel or None
        In the units of inputs and target.
    x_scale : ndarray of shape (d,)

    Returns
    -------
    list of dict
        One for each part of a sum or product, and one for a product over groups of inputs: ``name``, ``variance``, and
        where it has them ``lengthscales`` in the units of the inputs and ``lengthscales_standardised`` in training
        standard deviations, or ``slope_std`` and ``slope_std_standardised``.
    """
    import numpy as np

    from vastgp.kernels import Linear
    from vastgp.kernels.grid import GridKernel
    from vastgp.kernels.stationary import Stationary

    def of_each(name: str, values: Any, scale: Any) -> dict[str, list[float]]:
        values = np.broadcast_to(np.asarray(values, dtype=float), x_scale.shape)
        return {name: values.tolist(), f"{name}_standardised": (values * scale).tolist()}

    if kernel is None:
        return []
    if isinstance(kernel, GridKernel):
        # one kernel for each group of columns, in their order
        groups = zip(kernel.parts, kernel.groups, strict=True)
        scales = [
            np.broadcast_to(getattr(part, "lengthscales", np.nan), (len(group),))
            for part, group in groups
        ]
        name = ", ".join(dict.fromkeys(type(part).__name__ for part in kernel.parts))
        found = {"name": name, "variance": float(kernel.variance)}
        return [found | of_each("lengthscales", np.concatenate(scales), 1.0 / x_scale)]
    if hasattr(kernel, "parts"):
        return [found for part in kernel.parts for found in components(part, x_scale)]
    variance = getattr(kernel, "variance", None)
    found = {
        "name": type(kernel).__name__,
        "variance": None if variance is None else float(variance),
    }
    if isinstance(kernel, Stationary):
        found |= of_each("lengthscales", kernel.scales, 1.0 / x_scale)
    elif isinstance(kernel, Linear):
        found |= of_each("slope_std", np.sqrt(kernel.slope_variances), x_scale)
    return [found]


def _variance(kernel: Any, x_scale: Any) -> float:
    """Prior variance of the function; where it differs by rows, at those one deviation from the mean in every input."""
    import math

    import numpy as np

    from vastgp.kernels import Linear
    from vastgp.kernels.base import Product, Sum

    if isinstance(kernel, Sum | Product):
        of_parts = [_variance(part, x_scale) for part in kernel.parts]
        return sum(of_parts) if isinstance(kernel, Sum) else math.prod(of_parts)
    if isinstance(kernel, Linear):
        return float(np.sum(np.asarray(kernel.slope_variances) * x_scale**2))
    return float(kernel.total_variance())


def show(found: dict[str, Any], title: str, *, lengthscales: bool = True) -> None:
    """Print a summary as facts and a table of lengthscales."""
    from vastgp.cli._console import duration, facts, heading, number, plural

    heading(title)
    rows = [
        ("method", _method(found)),
        ("target", found["target"] or "not named"),
        (
            "trained on",
            f"{plural(found['training_rows'], 'row')}, {plural(len(found['features']), 'feature')}",
        ),
        ("kernel", " with ".join(part["name"] for part in found["components"]) or "none"),
        *([] if found["signal_std"] is None else [_signal(found)]),
        _noise(found),
        ("fit", f"{how_it_ended(found)}, {duration(found['seconds'])}"),
        *_time(found["spent"]),
        *_compared(found["scores"]),
    ]
    if found["solver"] == "block" and "residual" in found["diagnosis"]:
        left = found["diagnosis"]
        rows.append(
            (
                "residual",
                f"mean {number(left['residual'], 2)}, samples {number(left['residual_samples'], 2)} "
                "(noise standard deviations)",
            )
        )
    facts(rows + options_and_file(found))
    if lengthscales:
        show_lengthscales(found)


def options_and_file(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Which arguments were given, and where the model is from, where that is known."""
    rows = []
    if found["parameters"]:
        rows.append(("options", ", ".join(f"{k}={v}" for k, v in found["parameters"].items())))
    if "file_bytes" in found:
        rows.append(
            ("file", f"{found['file_bytes'] / 1e6:.3g} MB, written by vastgp {found['vastgp']}")
        )
    return rows


def _noise_std(model: Any) -> float | None:
    noise_std = getattr(model.likelihood_, "noise_std", None)
    return None if noise_std is None else float(noise_std)


def _signal(found: dict[str, Any]) -> tuple[str, str]:
    from vastgp.cli._console import number

    return "signal", f"standard deviation {number(found['signal_std'])}, {found['signal_units']}"


def _noise(found: dict[str, Any]) -> tuple[str, str]:
    from vastgp.cli._console import number

    if found["noise_std"] is None:
        return "likelihood", str(found["likelihood"])
    return "noise", f"standard deviation {number(found['noise_std'])}, in target units"


def _time(spent: dict[str, float]) -> list[tuple[str, str]]:
    """Where the time of a fit went; nothing for a loaded model."""
    phases = sorted(
        ((name, seconds) for name, seconds in spent.items() if name != "compilation"),
        key=lambda phase: -phase[1],
    )
    if not phases:
        return []
    shown = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases if seconds >= 0.05)
    return [
        ("time", f"{shown or 'less than 0.1 s'}; compilation {spent['compilation']:.1f} s of it")
    ]


def _compared(scores: dict[str, float]) -> list[tuple[str, str]]:
    """What the answer was compared with, where it was."""
    from vastgp.cli._console import number

    if len(scores) < 2:
        return []
    shown = ", ".join(f"{name} {number(score)}" for name, score in scores.items())
    return [("compared", f"{shown} (mean log density of standardised rows)")]


def _method(found: dict[str, Any]) -> str:
    parts = [found["method"]]
    if found["solver"]:
        parts.append(f"{found['solver']} solver")
    if found["num_basis"]:
        parts.append(f"{found['num_basis']:,} basis functions")
    return ", ".join(parts)


def how_it_ended(found: dict[str, Any]) -> str:
    """One phrase on the end of a fit."""
    from vastgp.cli._console import plural

    steps = plural(found["steps"], "step")
    if found["converged"]:
        return f"converged after {steps}"
    return f"not converged after {steps} ({found['stop_reason']})"


def show_lengthscales(found: dict[str, Any]) -> None:
    """Shortest (most relevant) first, in the units of the inputs and in their standard deviations."""
    from vastgp.cli._console import number, say, table

    names = found["features"]
    columns = [
        (f"{part['name']} {what}", part[key], part[f"{key}_standardised"])
        for part in found["components"]
        for key, what in (("lengthscales", "lengthscale"), ("slope_std", "slope"))
        if key in part
    ]
    if not columns:
        return
    scales = [
        part["lengthscales_standardised"] for part in found["components"] if "lengthscales" in part
    ]
    order = sorted(range(len(names)), key=lambda j: min((scale[j] for scale in scales), default=j))
    heads = ["feature"]
    for head, _, _ in columns:
        heads += [head if len(columns) > 1 else head.partition(" ")[2], "in std"]
    rows = []
    for j in order[:_SHOWN]:
        row = [names[j]]
        for _, values, standardised in columns:
            row += [number(values[j]), number(standardised[j], 3)]
        rows.append(row)
    table(heads, rows)
    hidden = (
        f" {len(names) - _SHOWN} longer ones are not shown (--json has all)."
        if len(names) > _SHOWN
        else ""
    )
    if not scales:
        return
    say(
        "The shorter the lengthscale, the faster the target changes along the feature; far above 1 std "
        f"it hardly matters.{hidden}",
        style="dim",
        wrap=True,
    )
