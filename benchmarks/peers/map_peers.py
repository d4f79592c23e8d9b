"""PyKrige, GSTools and verde on a file of `../maps.py`, each in an environment of its own (`README.md`).

    /tmp/maps/pykrige/bin/python benchmarks/peers/map_peers.py pykrige set.npz --out found.npz

What their pages leave to the user (form of the variogram, damping, how far a day is from a degree) is chosen by a tenth
of the readings, at most 300, predicted from up to 1500 others; the form of GSTools by the variogram's R2. A trend in
height is removed by least squares first.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Moments = tuple[np.ndarray, "np.ndarray | None"]
Predictor = Callable[[np.ndarray], Moments]
# Readings that a variogram is estimated of, and that its choice is judged by.
VARIOGRAM, JUDGED, JUDGING = 2000, 300, 1500
KM = 6371.0


def some(n: int, most: int, seed: int = 0) -> np.ndarray:
    """Return numbers of random rows, sorted."""
    return np.sort(np.random.default_rng(seed).permutation(n)[:most])


def best(options: list[Any], make: Callable[..., Predictor], X: np.ndarray, y: np.ndarray) -> Any:
    """Return the option of lowest RMSE at readings that are kept out."""
    if len(options) == 1:
        return options[0]
    order = np.random.default_rng(1).permutation(len(y))
    held = min(JUDGED, len(y) // 10)
    out, kept = np.sort(order[:held]), np.sort(order[held:][:JUDGING])
    scores = []
    for option in options:
        try:
            mean, _ = make(X[kept], y[kept], option)(X[out])
            scores.append(np.sqrt(np.mean((mean - y[out]) ** 2)))
        except (ValueError, np.linalg.LinAlgError):
            scores.append(np.inf)
    print([(option, round(float(score), 4)) for option, score in zip(options, scores, strict=True)])
    return options[int(np.nanargmin(scores))]


# ---------------------------------------------------------------- PyKrige


def pykrige(X: np.ndarray, y: np.ndarray, sphere: bool) -> tuple[Callable[..., Predictor], list]:
    """Ordinary kriging of the nearest readings ("moving window"); the variogram's form by readings kept out.

    In time OrdinaryKriging3D, which knows no sphere: of points of the plane, or a chord's three coordinates where
    there is no time. Its own fit of the variogram is of all pairs, and here of 2000 readings.
    """
    from pykrige.ok import OrdinaryKriging
    from pykrige.ok3d import OrdinaryKriging3D

    def make(X: np.ndarray, y: np.ndarray, option: Any) -> Predictor:
        form, near, time_scale = option
        part = some(len(y), VARIOGRAM)
        options = {"variogram_model": form, "nlags": 20, "weight": True}
        if X.shape[1] == 3:
            options |= {"anisotropy_scaling_z": time_scale}
            kind: Any = OrdinaryKriging3D
            columns = (1, 0, 2)
        else:
            options |= {"coordinates_type": "geographic" if sphere else "euclidean"}
            kind, columns = OrdinaryKriging, (1, 0)
        of_part = kind(*(X[part, i] for i in columns), y[part], **options)
        parameters = np.asarray(of_part.variogram_model_parameters).tolist()
        model = of_part
        if len(part) < len(y):
            if form not in ("linear", "power"):
                parameters[0] += parameters[2]  # a list gives the whole sill
            model = kind(*(X[:, i] for i in columns), y, variogram_parameters=parameters, **options)

        def predict(new: np.ndarray) -> Moments:
            backend = {"backend": "C"} if kind is OrdinaryKriging else {"backend": "loop"}
            mean, variance = model.execute(
                "points", *(new[:, i] for i in columns), n_closest_points=min(near, len(y)), **backend
            )  # fmt: skip
            return np.asarray(mean), np.sqrt(np.maximum(np.asarray(variance), 1e-12))

        return predict

    scales = [1.0]
    if X.shape[1] == 3:
        # a year, or a month, as far as so many degrees
        spread = np.ptp(X[:, 0]) / np.ptp(X[:, 2])
        scales = [spread * factor for factor in (0.1, 0.3, 1.0, 3.0, 10.0)]
    forms = ("spherical", "exponential", "gaussian", "linear", "power")
    return make, [(form, 50, scale) for form in forms for scale in scales]


# ---------------------------------------------------------------- GSTools


def gstools(X: np.ndarray, y: np.ndarray, sphere: bool) -> tuple[Callable[..., Predictor], list]:
    """Ordinary kriging of all readings, on the sphere and in time; the form of highest R2 of the variogram.

    It inverts the matrix of all readings: of up to 5000, a random part where there are more. Its pseudo-inverse, the
    default, takes an hour for these; the plain inverse is asked for.
    """
    import gstools as gs
    import scipy.linalg

    temporal = X.shape[1] == 3

    def make(X: np.ndarray, y: np.ndarray, option: Any) -> Predictor:
        time_scale = option
        part = some(len(y), 5000)
        X, y = X[part], y[part]
        arguments: dict[str, Any] = {"dim": 2} if not sphere else {"latlon": True, "geo_scale": KM}
        if temporal:
            arguments |= {"temporal": True, "anis": time_scale}
        position = tuple(X.T) if sphere else tuple(X[:, ::-1].T)
        near = some(len(y), VARIOGRAM)
        if temporal:
            # chords and scaled time in four dimensions: there is no estimate of both at once
            chords = KM * points(X[near, 0], X[near, 1])
            at = tuple(np.column_stack([chords, X[near, 2] / time_scale]).T)
            centres, gamma = gs.vario_estimate(at, y[near])
        else:
            here = tuple(one[near] for one in position)
            where = {"latlon": True, "geo_scale": KM} if sphere else {}
            centres, gamma = gs.vario_estimate(here, y[near], **where)
        fitted = []
        for form in ("Exponential", "Matern", "Stable", "Spherical", "Gaussian", "Rational"):
            model = getattr(gs, form)(**arguments)
            fitted.append((model.fit_variogram(centres, gamma, return_r2=True)[2], form, model))
        _, form, model = max(fitted, key=lambda one: one[0])
        print(form, model)
        krige = gs.krige.Ordinary(model, position, y, pseudo_inv=True, pseudo_inv_type=scipy.linalg.inv)  # fmt: skip

        def predict(new: np.ndarray) -> Moments:
            at = tuple(new.T) if sphere else tuple(new[:, ::-1].T)
            mean, variance = krige(at, return_var=True)
            return np.asarray(mean), np.sqrt(np.maximum(np.asarray(variance), 1e-12))

        return predict

    scales = [1.0]
    if temporal:
        spread = np.ptp(X[:, 2]) / KM
        scales = [spread * factor for factor in (0.1, 0.3, 1.0, 3.0, 10.0)]
    return make, scales


def points(lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    """Return places on the unit sphere."""
    lat, lon = np.deg2rad(lat), np.deg2rad(lon)
    return np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


# ---------------------------------------------------------------- verde


def verde(X: np.ndarray, y: np.ndarray, sphere: bool) -> tuple[Callable[..., Predictor], list]:
    """Biharmonic splines in the plane, damping by readings kept out, or means of neighbours; no deviations.

    Forces are at up to 5000 places: its matrix has a row for each reading and a column for each of these.
    """
    import verde as vd

    def make(X: np.ndarray, y: np.ndarray, option: Any) -> Predictor:
        kind, value = option
        flat = plane(X, sphere)
        if kind == "spline":
            forces = flat if len(y) <= 5000 else tuple(one[some(len(y), 5000)] for one in flat)
            model: Any = vd.Spline(damping=value, force_coords=forces)
        else:
            model = {"neighbours": lambda: vd.KNeighbors(k=value), "cubic": vd.Cubic}[kind]()
        model.fit(flat, y)
        return lambda new: (np.asarray(model.predict(plane(new, sphere))), None)

    dampings = [None, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2]
    options: list[Any] = [("spline", damping) for damping in dampings]
    return make, [*options, ("neighbours", 1), ("neighbours", 5), ("neighbours", 10)]


def plane(X: np.ndarray, sphere: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return easting and northing: of degrees Mercator's, as verde's pages do, in km."""
    if not sphere:
        return X[:, 1], X[:, 0]
    lat = np.deg2rad(np.clip(X[:, 0], -89.0, 89.0))
    return KM * np.deg2rad(X[:, 1]), KM * np.arcsinh(np.tan(lat))


# ---------------------------------------------------------------- run


def of_slice(
    peer: Any, held: dict[str, Any], given: np.ndarray, new: np.ndarray, option: Any
) -> Any:
    """Return what a peer says of the withheld places of one slice, and the option it took."""
    X, y, at = held["inputs"][given], held["y"][given], held["new"][new]
    names = list(held["names"])
    sphere = bool(held["sphere"])
    trend, trend_new = 0.0, 0.0
    if "height" in names:
        column = names.index("height")
        H = np.column_stack([np.ones(len(X)), X[:, column]])
        slope = np.linalg.lstsq(H, y, rcond=None)[0]
        trend, trend_new = H @ slope, slope[0] + slope[1] * at[:, column]
        X, at = np.delete(X, column, 1), np.delete(at, column, 1)
    if sphere:
        X[:, 1], at[:, 1] = X[:, 1] % 360.0, at[:, 1] % 360.0
    make, options = peer(X, y - trend, sphere)
    option = best(options, make, X, y - trend) if option is None else option
    mean, std = make(X, y - trend, option)(at)
    return mean + trend_new, std, option


def peak_mb() -> float:
    """Return the most memory that this program has had, MB."""
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024  # type: ignore[index]


def main() -> None:
    """Predict the withheld places of one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=["pykrige", "gstools", "verde"])
    parser.add_argument("file")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    with np.load(args.file) as stored:
        held = {name: stored[name] for name in stored.files}
    peer = {"pykrige": pykrige, "gstools": gstools, "verde": verde}[args.peer]
    peer(held["inputs"][:, :2], held["y"], False)  # imports are no part of its time
    began, used = time.perf_counter(), time.process_time()
    mean = np.full(len(held["y_new"]), np.nan)
    std, option = mean.copy(), None
    for number in np.unique(held["slice_new"]):
        given, new = (np.flatnonzero(held[name] == number) for name in ("slice", "slice_new"))
        # the form of the first slice serves the others, whose parameters are their own
        here, spread, option = of_slice(peer, held, given, new, option)
        mean[new] = here
        if spread is not None:
            std[new] = spread
    np.savez(
        args.out, mean=mean, std=std, seconds=time.perf_counter() - began,
        processor_seconds=time.process_time() - used, peak_mb=peak_mb(), more=str(option),
    )  # fmt: skip


if __name__ == "__main__":
    main()
