"""Grids whose cells have known errors: the dense process with noise that differs from cell to cell."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import vastgp
from grid_cases import CASES, NOISE
from methods.grid.test_evidence import differences, flat
from vastgp import RBF, GridGP, Matern32, Matern52
from vastgp.linalg.kronecker import KroneckerEigen
from vastgp.methods.grid.evidence import GridObjective
from vastgp.methods.grid.known_errors import KnownErrors
from vastgp.methods.grid.options import VarianceSamples
from vastgp.methods.grid.posterior import GridPosterior
from vastgp.methods.grid.probes import GridProbes
from vastgp.methods.grid.samples import joint_samples
from vastgp.methods.grid.spectrum import compressed_log_determinant
from vastgp.options import CrossValidation, Evidence, FillGaps, Fixed, IgnoreGaps

GAPS = (0.0, 0.3, 0.9)
KINDS = ("fill-gaps", "ignore-gaps")


def errors_of(case):
    """Error variances from a hundredth to a hundred times the noise, some of them the least."""
    rng = np.random.default_rng(5)
    return np.where(
        rng.uniform(size=len(case.rows)) < 0.1, 1e-4, 10 ** rng.uniform(-4, 1, len(case.rows)) * 0.5
    )


def solver_of(case, observed, kind="fill-gaps", **options):
    known = KnownErrors.of(errors_of(case), observed)
    return case.solver(observed, kind, **({"known": known} | options))


def dense(case, observed, noise=NOISE):
    """The matrix of the observed points, its solution, and the log evidence."""
    X, y = case.rows[observed], case.values[observed]
    A = case.covariance(X, X) + np.diag(float(noise) + errors_of(case)[observed])
    alpha = np.linalg.solve(A, y)
    evidence = -0.5 * (y @ alpha + np.linalg.slogdet(A)[1] + len(y) * np.log(2 * np.pi))
    return A, alpha, evidence


@pytest.fixture(scope="module", params=["two dimensions", "a group and outputs"])
def case(request):
    return CASES[request.param]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [0, 25, None])
def test_mean_and_variance_are_those_of_the_dense_process(case, kind, rank, monkeypatch):
    """By iterations with the diagonal, with eigenvectors, and with the matrix factorised."""
    monkeypatch.setattr("vastgp.methods.grid.solver._LEAST_TRIED", 0)
    monkeypatch.setattr("vastgp.methods.grid.solver._TRIED_SHARE", 0.0)
    for gaps in GAPS:
        observed = case.observed(gaps)
        A, alpha, _ = dense(case, observed)
        cross = case.covariance(case.rows, case.rows[observed])
        explained = np.einsum("ij,ji->i", cross, np.linalg.solve(A, cross.T))
        prior = np.diagonal(case.covariance(case.rows, case.rows))
        solver = solver_of(case, observed, kind, rank=rank)
        found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
        assert found.solution.converged and (solver.factorisations > 0) == (rank is None)
        filled = found.filled()
        posterior = GridPosterior(case.kernel, NOISE, case.axes, filled, solver)
        np.testing.assert_allclose(posterior.weights[observed], alpha, atol=1e-7)
        np.testing.assert_allclose(posterior.mean(case.axes), cross @ alpha, atol=1e-8)
        variance = posterior.variance(case.axes, "exact")
        np.testing.assert_allclose(variance, prior - explained, atol=1e-8)
        low_rank = posterior.variance(case.axes, "low-rank")
        np.testing.assert_allclose(low_rank, prior - explained, rtol=1e-3)


def test_penalised_gaps_have_the_errors_of_their_points(case):
    observed = case.observed(0.3)
    solver = solver_of(case, observed, "penalize-gaps", penalty=1e8)
    found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
    alpha = dense(case, observed)[1]
    np.testing.assert_allclose(found.solution.weights[0][observed], alpha, atol=1e-5)


def test_single_precision_finds_the_same_mean(case):
    observed = case.observed(0.3)
    _, alpha, _ = dense(case, observed)
    mean = case.covariance(case.rows, case.rows[observed]) @ alpha
    for kind in KINDS:
        solver = solver_of(case, observed, kind, dtype="float32", tol=1e-4)
        found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
        posterior = GridPosterior(case.kernel, NOISE, case.axes, found.filled(), solver)
        np.testing.assert_allclose(posterior.mean(case.axes), mean, atol=2e-3)


def test_what_the_data_say_is_exact_and_only_the_determinant_is_not(case):
    for gaps in GAPS:
        observed = case.observed(gaps)
        A, _, evidence = dense(case, observed)
        for kind in KINDS:
            solver = solver_of(case, observed, kind)
            objective = GridObjective(case.axes, case.values, solver)
            value = objective.value(objective.solve(case.kernel, NOISE), np.linalg.slogdet(A)[1])
            assert value == pytest.approx(evidence, abs=1e-7)


def test_free_compression_is_exact_for_multiples_of_the_identity(case):
    observed = case.observed(0.3)
    excess = errors_of(case)[observed]
    identity = KroneckerEigen(
        tuple(np.eye(len(axis)) for axis in case.axes),
        tuple(np.ones(len(axis)) for axis in case.axes),
        np.float64(1.7),
    )
    got = compressed_log_determinant(identity, NOISE, len(excess), excess).value
    assert got == pytest.approx(np.sum(np.log(1.7 + NOISE + excess)), rel=1e-10)
    # errors that say nothing are gaps
    eigen = GridObjective(case.axes, case.values, case.solver(observed)).eigen(case.kernel)
    lost = np.where(observed, 0.0, 1e12)
    got = compressed_log_determinant(eigen, NOISE, observed.size, lost).value
    gaps = compressed_log_determinant(eigen, NOISE, len(excess)).value
    assert got - np.sum(~observed) * np.log(1e12) == pytest.approx(gaps, rel=1e-6)


def test_free_compression_comes_near_to_the_determinant():
    """Errors at random, a grid of 900 points: within a hundredth of a nat a value."""
    case = replace(
        CASES["two dimensions"], axes=(np.arange(30.0)[:, None], np.arange(30.0)[:, None])
    )
    case = replace(case, kernel=case.kernel.in_units([4.0, 4.0], 1.0))
    for gaps in (0.0, 0.3):
        observed = case.observed(gaps)
        A = dense(case, observed)[0]
        system = GridObjective(case.axes, case.values, solver_of(case, observed))
        system = system.solve(case.kernel, NOISE, 1e-3).system
        n, excess = int(observed.sum()), system.excess[observed]
        got = compressed_log_determinant(system.eigen, system.noise, n, excess).value
        exact = np.linalg.slogdet(A)[1]
        one_noise = np.exp(np.mean(np.log(NOISE + errors_of(case)[observed])))
        without = compressed_log_determinant(system.eigen, one_noise, n).value
        assert abs(got - exact) < 0.01 * n < abs(without - exact)


def test_derivatives_are_those_of_the_value(case):
    for gaps in (0.0, 0.3):
        objective = GridObjective(case.axes, case.values, solver_of(case, case.observed(gaps)))
        params = (case.kernel, np.array(NOISE))
        gradient = objective.objective(params)[1]
        numerical = differences(lambda k, noise, value=objective: value(k, noise), params)
        np.testing.assert_allclose(
            flat(gradient), numerical, rtol=1e-5, atol=1e-5 * np.abs(numerical).max()
        )


@pytest.mark.parametrize("gaps", [0.0, 0.3, 0.9])
def test_probes_are_unbiased_in_value_and_derivatives(gaps):
    case = CASES["two dimensions"]
    observed = case.observed(gaps)
    solver = solver_of(case, observed, "fill-gaps" if gaps < 0.5 else "ignore-gaps", tol=1e-9)
    values, draws = [], []
    for seed in range(12):
        probes = GridProbes(solver, 8, 40, seed)
        objective = GridObjective(case.axes, case.values, solver, "evidence", probes)
        value, gradient = objective.objective((case.kernel, np.array(NOISE)))
        values.append(value)
        draws.append(flat(gradient))
    exact = differences(
        lambda kernel, noise: dense(replace(case, kernel=kernel), observed, noise)[2],
        (case.kernel, np.array(NOISE)),
    )
    free = np.abs(exact) > 1e-6 * np.abs(exact).max()
    draws = np.array(draws)[:, free]
    for got, expected in ((values, dense(case, observed)[2]), (draws, exact[free])):
        mean, error = np.mean(got, axis=0), np.std(got, axis=0, ddof=1) / np.sqrt(len(got))
        assert np.all(np.abs(mean - expected) < 4.5 * error)
        assert np.all(error < 0.1 * np.abs(expected) + 1.0)


def test_variances_by_samples_are_unbiased():
    case = CASES["two dimensions"]
    for gaps in (0.0, 0.3):
        observed = case.observed(gaps)
        solver = solver_of(case, observed, tol=1e-9)
        found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
        posterior = GridPosterior(case.kernel, NOISE, case.axes, found.filled(), solver)
        exact = posterior.variance(case.axes, "exact")
        number = 2000
        sampled = posterior.variance(case.axes, VarianceSamples(number))
        assert np.max(np.abs(sampled / exact - 1.0)) < 4.5 * np.sqrt(2.0 / number)


def test_joint_samples_have_the_covariance_of_the_dense_process():
    case, draws = CASES["one dimension"], 600
    observed = case.observed(0.3)
    solver = solver_of(case, observed, tol=1e-9)
    found = GridObjective(case.axes, case.values, solver).solve(case.kernel, NOISE)
    posterior = GridPosterior(case.kernel, NOISE, case.axes, found.filled(), solver)
    A, alpha, _ = dense(case, observed)
    cross = case.covariance(case.rows, case.rows[observed])
    covariance = case.covariance(case.rows, case.rows) - cross @ np.linalg.solve(A, cross.T)
    samples = joint_samples(posterior, case.axes, draws, 2, False)
    variance = np.diagonal(covariance)
    of_mean = (samples.mean(axis=0) - cross @ alpha) / np.sqrt(variance / draws)
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / draws)
    assert np.max(np.abs(of_mean)) < 4.0
    assert np.max(np.abs((np.cov(samples.T) - covariance) / error)) < 4.7


# ---------------------------------------------------------------- the estimator

KERNELS = {"day": RBF(4.0, 3.0), "lat": Matern32(3.0), "lon": Matern52(6.0)}


@pytest.fixture(scope="module")
def field():
    """A field in K with latitudes that descend, gaps, and an error of each cell from 0.1 to 3 K; and that error."""
    rng = np.random.default_rng(0)
    day, lat, lon = np.arange(8.0), np.array([50.0, 47.0, 43.0, 42.0]), np.arange(0.0, 12.0, 2.0)
    truth = 280.0 + 2.0 * np.sin(day / 3)[:, None, None] * np.cos(lat / 4)[:, None] * np.sin(
        lon / 5
    )
    error = 0.1 * 30.0 ** rng.uniform(size=truth.shape)
    values = truth + (error**2 + 0.2**2) ** 0.5 * rng.normal(size=truth.shape)
    values[rng.uniform(size=truth.shape) < 0.2] = np.nan
    coords = {"day": day, "lat": lat, "lon": lon}
    make = lambda part: xr.DataArray(part, dims=("day", "lat", "lon"), coords=coords)  # noqa: E731
    return make(values).assign_attrs(units="K"), make(error), make(truth)


def fixed(noise_std, **options):
    return GridGP(KERNELS, hyperparameters=Fixed(noise_std=noise_std), **options)


@pytest.mark.parametrize("solver", KINDS)
def test_a_fit_is_the_dense_process_in_units_of_the_values(field, solver, tmp_path):
    values, error, _ = field
    how = {"fill-gaps": FillGaps(tol=1e-10), "ignore-gaps": IgnoreGaps(tol=1e-10)}[solver]
    model = fixed(0.2, solver=how).fit(values, noise_std=error)
    seen = np.isfinite(values.values.ravel())
    rows = np.stack(
        [g.ravel() for g in np.meshgrid(*(values[d].values for d in values.dims), indexing="ij")], 1
    )
    case = replace(CASES["two dimensions"], kernel=model.kernel_)
    variances = error.values.ravel()[seen] ** 2
    A = case.covariance(rows[seen], rows[seen]) + np.diag(0.2**2 + variances)
    mean = float(np.ravel(model.value_mean_)[0])
    y = values.values.ravel()[seen] - mean
    cross = case.covariance(rows, rows[seen])
    predicted = model.predict(variance="exact")
    np.testing.assert_allclose(
        predicted["mean"].values.ravel(), mean + cross @ np.linalg.solve(A, y), rtol=1e-8
    )
    left = 3.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(A, cross.T))
    # a new observation has the noise that is learned, or given, and not the error of another one
    np.testing.assert_allclose(predicted["std"].values.ravel() ** 2, left + 0.2**2, rtol=1e-7)
    assert model.noise_std_ == pytest.approx(0.2) == model.likelihood_.noise_std
    evidence = -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(A)[1])
    evidence -= 0.5 * len(y) * np.log(2 * np.pi)
    assert abs(model.log_evidence_unbiased_ - evidence) < 4.5 * model.log_evidence_se_ < 20.0
    assert model.log_evidence_ == pytest.approx(evidence, abs=0.02 * len(y))
    # the plain mean would be that of the cells with the largest errors
    assert abs(mean - np.average(y + mean, weights=1.0 / variances)) < abs(
        mean - np.nanmean(values)
    )
    model.save(tmp_path / "m.vastgp")
    again = vastgp.load(tmp_path / "m.vastgp")
    xr.testing.assert_allclose(again.predict(), model.predict(), rtol=1e-9)
    xr.testing.assert_allclose(again.sample_y(), model.sample_y(), rtol=1e-9)
    assert again.noise_std_ == model.noise_std_


def test_equal_errors_are_plain_noise(field):
    values, _, _ = field
    known = fixed(0.3).fit(values, noise_std=np.full(values.shape, 0.4))
    plain = fixed(0.5).fit(values)
    asked = {"return_std": "latent"}
    xr.testing.assert_allclose(known.predict(**asked), plain.predict(**asked), rtol=1e-9)
    assert known.log_evidence_ == pytest.approx(plain.log_evidence_, rel=1e-10)
    xr.testing.assert_allclose(known.sample_y(), plain.sample_y(), rtol=1e-9)
    assert known.noise_std_ == pytest.approx(0.3)
    none = fixed(0.5).fit(values, noise_std=np.zeros(values.shape))
    xr.testing.assert_identical(none.predict(), plain.predict())


def test_equal_errors_are_taken_from_the_noise_that_is_learned():
    rng = np.random.default_rng(1)
    t, x = np.arange(24.0), np.arange(10.0)
    values = 3.0 * np.sin(t / 4)[:, None] * np.cos(x / 3) + 0.5 * rng.normal(size=(24, 10))
    array = xr.DataArray(values, dims=("t", "x"), coords={"t": t, "x": x}, name="u")
    options = {"kernels": {"t": "rbf", "x": "rbf"}, "criterion": Evidence(num_probes=0)}
    plain = GridGP(**options).fit(array)
    known = GridGP(**options).fit(array, noise_std=0.3 + 0.0 * array)
    assert known.noise_std_**2 + 0.3**2 == pytest.approx(plain.noise_std_**2, rel=1e-2)
    assert known.log_evidence_ == pytest.approx(plain.log_evidence_, abs=0.05)


def test_learning_tells_known_errors_from_noise(field):
    values, error, truth = field
    options = {"kernels": {"day": "rbf", "lat": "rbf", "lon": "rbf"}}
    known = GridGP(**options).fit(values, noise_std=error)
    plain = GridGP(**options).fit(values)
    assert known.converged_ and 0.1 < known.noise_std_ < 0.3 < 0.7 < plain.noise_std_
    off = {}
    for name, model in {"known": known, "plain": plain}.items():
        field_of = model.predict(return_std="latent", variance="exact")
        off[name] = (field_of["mean"] - truth) / field_of["std"], field_of["mean"] - truth
    rmse = {name: float(np.sqrt((error**2).mean())) for name, (_, error) in off.items()}
    assert rmse["known"] < 0.75 * rmse["plain"]
    assert 0.9 < float((abs(off["known"][0]) < 1.96).mean()) < 1.0


def test_errors_are_found_by_their_coordinates(field):
    values, error, _ = field
    plain = fixed(0.2).fit(values, noise_std=error).predict(variance="exact")
    gaps_marked = error.where(np.isfinite(values), -99.0)
    for other in (
        error.transpose("lon", "day", "lat"),
        error.sortby("lat"),
        error.pad(day=(1, 0), constant_values=np.nan).assign_coords(day=np.arange(-1.0, 8.0)),
        gaps_marked,
        error.values,
        error.drop_vars("lon"),
    ):
        got = fixed(0.2).fit(values, noise_std=other).predict(variance="exact")
        xr.testing.assert_allclose(got, plain, rtol=1e-9)
    turned = values.transpose("lon", "lat", "day").sortby("lat")
    got = fixed(0.2).fit(turned, noise_std=error).predict(variance="exact")
    xr.testing.assert_allclose(got.transpose(*values.dims).sel(lat=values.lat), plain, rtol=1e-7)
    along = error.isel(lat=0, lon=0, drop=True)
    got = fixed(0.2).fit(values, noise_std=along).predict(return_std=False)
    wide = fixed(0.2).fit(values, noise_std=along.broadcast_like(values))
    xr.testing.assert_identical(got, wide.predict(return_std=False))


def test_land_in_a_group_is_left_out_with_its_errors(field):
    values, error, _ = field
    land = values.where(~((values.lat > 44) & (values.lon < 5)))
    kernels = {"day": RBF(4.0, 3.0), ("lat", "lon"): RBF([3.0, 6.0])}
    model = GridGP(kernels, hyperparameters=Fixed(noise_std=0.2)).fit(land, noise_std=error)
    parts = {"day": RBF(4.0, 3.0), "lat": RBF(3.0), "lon": RBF(6.0)}
    other = GridGP(parts, hyperparameters=Fixed(noise_std=0.2)).fit(land, noise_std=error)
    got, expected = (m.predict(variance="exact") for m in (model, other))
    xr.testing.assert_allclose(got, expected, rtol=1e-4)


def test_outputs_have_one_noise_relative_to_their_own_scale():
    rng = np.random.default_rng(2)
    t = np.arange(60.0)
    signal = np.sin(t / 5)
    error = 10.0 ** rng.uniform(-2, 0.5, size=(2, 60))
    sizes = np.array([[1.0], [50.0]])
    values = sizes * (signal + (error**2 + 0.1**2) ** 0.5 * rng.normal(size=(2, 60)))
    array = xr.DataArray(values, dims=("output", "t"), coords={"output": ["a", "b"], "t": t})
    model = GridGP({"t": "rbf"}).fit(array, noise_std=sizes * error)
    assert model.noise_std_[1] / model.noise_std_[0] == pytest.approx(50.0, rel=0.3)
    assert np.all((0.05 * sizes[:, 0] < model.noise_std_) & (model.noise_std_ < 0.2 * sizes[:, 0]))
    mean = model.predict(return_std=False)["mean"]
    assert np.all(np.sqrt(np.mean((mean / sizes - signal) ** 2, axis=1)) < 0.12)
    kernels = {"t": RBF(5.0), "output": vastgp.kernels.Coregionalisation(2)}
    model = GridGP(kernels, hyperparameters=Fixed(noise_std=[0.1, 5.0]))
    with pytest.raises(ValueError, match=r"2 outputs and fit\(noise_std=...\) exclude each other"):
        model.fit(array, noise_std=sizes * error)


def _with(error, value):
    error[0, 1, 2] = value
    return error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: 0.3, r"noise_std=0.3 is a single value.*Fixed\(noise_std=...\)"),
        (lambda e: e.values[:, 0], r"noise_std has shape \(8, 6\). Expected \(8, 4, 6\), that of"),
        (lambda e: e.expand_dims(member=3), "has the dimension 'member', and data_array has 'day'"),
        (lambda e: e.assign_coords(lat=[1.0, 2.0, 3.0, 4.0]), "other coordinates along 'lat'.*50"),
        (lambda e: e[:4], "other coordinates along 'day' than data_array: nothing at 4"),
        (lambda e: e.drop_vars("day")[:4], "has 4 positions along 'day', and data_array has 8"),
        (lambda e: e.astype(str), "noise_std must hold real numbers, received dtype <U"),
        (lambda e: _with(e, -1.0), "1 other value, the first -1.0 at day=0, lat=1, lon=2"),
        (lambda e: _with(e, np.nan), "the first nan at day=0, lat=1, lon=2.*data_array.where"),
        (lambda e: _with(e, np.inf), "the first inf at day=0"),
    ],
)
def test_errors_that_do_not_fit_the_cells_are_refused(field, change, message):
    values = field[0].fillna(280.0)
    with pytest.raises(ValueError, match=message):
        GridGP().fit(values, noise_std=change(field[1].copy()))


def test_criteria_of_one_noise_are_refused(field):
    for criterion, message in (
        (CrossValidation(), "noise_std and criterion='gcv' exclude each other.*'evidence'"),
        (Evidence("nystrom"), r"spectrum='nystrom'\) exclude each other.*'probes'"),
    ):
        with pytest.raises(ValueError, match=message):
            GridGP(criterion=criterion).fit(field[0], noise_std=field[1])


def test_errors_are_part_of_what_a_checkpoint_was_made_of(field):
    values, error, _ = field
    once, again, other = (
        GridGP()._open_grid(values, each).describe()
        for each in (error, error, error + (values < 280))
    )
    assert once == again != other
