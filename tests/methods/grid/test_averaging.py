"""`GridGP(hyperparameters="average")`: its mixture against brute quadrature, files, samples, densities, outputs."""

import numpy as np
import pytest
import xarray as xr

from vastgp import RBF, GridGP, load
from vastgp.fitting.hyperparameter_average import PRIOR_DEVIATION
from vastgp.methods.grid.start import bounds
from vastgp.options import Average, CrossValidation, Evidence, Learn

T = np.linspace(0.0, 6.0, 12)
AHEAD = np.array([3.3, 7.0, 9.0])


def series(seed=0):
    noise = np.random.default_rng(seed).normal(0.0, 0.25, len(T))
    return xr.DataArray(np.sin(T) + noise, dims="t", coords={"t": T}, name="x")


def fitted(number=8, data=None, **params):
    return GridGP(
        {"t": RBF(1.0)}, hyperparameters=Average(noise_floor=1e-3, num_components=number), **params
    ).fit(series() if data is None else data)


@pytest.fixture(scope="module")
def model():
    return fitted(12)


@pytest.mark.slow
def test_mean_and_variance_are_those_of_quadrature_over_all_hyperparameters():
    """Lengthscale, variance and noise on a lattice of their logarithms, with the same prior and bounds."""
    posterior = fitted(400).posterior_
    learned = GridGP({"t": RBF(1.0)}, hyperparameters=Learn(noise_floor=1e-3)).fit(series())
    y = ((series() - learned.value_mean_) / learned.value_scale_).values
    kernel, axes = learned.posterior_.kernel, learned.posterior_.axes
    low, high = bounds(kernel, axes)
    ends = [
        np.log([float(low.parts[0].lengthscales[0]), float(high.parts[0].lengthscales[0])]),
        np.log([1e-4, 1e4]),
        np.log([1e-3, 10.0]),
    ]
    noise = learned.posterior_.noise_variance
    at = np.log([float(kernel.parts[0].lengthscales[0]), float(kernel.variance), noise])
    steps = PRIOR_DEVIATION * np.linspace(-3.5, 3.5, 41)
    lattice = np.stack(np.meshgrid(*[steps] * 3, indexing="ij"), -1).reshape(-1, 3)
    apart, to_new = (T[:, None] - T) ** 2, (AHEAD[:, None] - T) ** 2
    logs, moments = [], []
    for u in lattice:
        scale, variance, sigma = np.exp(np.clip(at + u, *np.transpose(ends)))
        K = variance * np.exp(-0.5 * apart / scale**2) + sigma * np.eye(len(T))
        k = variance * np.exp(-0.5 * to_new / scale**2)
        lower = np.linalg.cholesky(K + 1e-12 * np.eye(len(T)))
        half, cross = np.linalg.solve(lower, y), np.linalg.solve(lower, k.T)
        logs.append(
            -0.5 * half @ half
            - np.sum(np.log(np.diagonal(lower)))
            - 0.5 * u @ u / PRIOR_DEVIATION**2
        )
        moments.append((cross.T @ half, variance - np.sum(cross**2, axis=0), sigma))
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    means = np.array([m for m, _, _ in moments])
    mean = weights @ means
    variance = weights @ (np.array([v for _, v, _ in moments]) + (means - mean) ** 2)
    noise = weights @ np.array([s for *_, s in moments])
    found = posterior.mean_and_variance([AHEAD[:, None]])
    # 400 draws of a chain: some five standard errors
    assert np.all(np.abs(found[0] - mean) < 0.15 * np.sqrt(variance))
    np.testing.assert_allclose(found[1] ** 0.5, variance**0.5, rtol=0.12)
    assert posterior.noise_variance == pytest.approx(noise, rel=0.15)
    sure = learned.posterior_.mean_and_variance([AHEAD[:, None]])
    assert np.all(found[1][1:] > 1.2 * sure[1][1:])


def test_the_mixture_has_the_moments_of_its_parts(model):
    posterior = model.posterior_
    assert posterior.mixture.sum() == pytest.approx(1.0)
    assert len(posterior.parts) > 3
    moments = [part.mean_and_variance([AHEAD[:, None]]) for part in posterior.parts]
    means, variances = (np.array(each) for each in zip(*moments, strict=True))
    mean = posterior.mixture @ means
    variance = posterior.mixture @ (variances + means**2) - mean**2
    predicted = model.predict({"t": AHEAD}, return_std="latent")
    scale = float(np.ravel(model.value_scale_)[0])
    np.testing.assert_allclose(predicted["std"], variance**0.5 * scale, rtol=1e-9)
    np.testing.assert_allclose(
        predicted["mean"], mean * scale + float(np.ravel(model.value_mean_)[0]), rtol=1e-9
    )
    observed = model.predict({"t": AHEAD})["std"].values ** 2
    np.testing.assert_allclose(observed - predicted["std"] ** 2, model.noise_std_**2, rtol=1e-9)
    assert model.likelihood_.noise_std == pytest.approx(model.noise_std_)


def test_samples_are_of_the_mixture(model):
    drawn = model.sample_y({"t": AHEAD}, n_samples=800)
    predicted = model.predict({"t": AHEAD}, return_std="latent")
    error = predicted["std"].values / 800**0.5
    assert np.all(np.abs(drawn.mean("sample") - predicted["mean"]) < 4.0 * error)
    np.testing.assert_allclose(drawn.std("sample"), predicted["std"], rtol=0.15)
    np.testing.assert_array_equal(drawn, model.sample_y({"t": AHEAD}, n_samples=800))


def test_densities_integrate_to_one_and_are_no_normal_ones(model):
    """A mixture's: the integral over values at one place is one, and it has heavier tails."""
    at, values = float(T[-1] + 4.0), np.arange(-8.0, 8.0, 0.5)
    places = [xr.DataArray([v], dims="t", coords={"t": [at]}) for v in values]
    logs = [float(model.log_predictive_density(one)[0]) for one in places]
    assert np.sum(np.exp(logs)) * 0.5 == pytest.approx(1.0, abs=0.01)
    predicted = model.predict({"t": [at]})
    mean, std = float(predicted["mean"][0]), float(predicted["std"][0])
    far = xr.DataArray([mean + 5.0 * std], dims="t", coords={"t": [at]})
    assert float(model.log_predictive_density(far)[0]) > -12.5 - np.log(std) - 0.92


def test_saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model.vastgp")
    again = load(tmp_path / "model.vastgp")
    assert again.hyperparameters == Average(noise_floor=1e-3, num_components=12)
    xr.testing.assert_identical(model.predict({"t": AHEAD}), again.predict({"t": AHEAD}))
    assert again.posterior_.solver is again.posterior_.parts[-1].solver


def test_outputs_keep_the_ratios_of_their_noise():
    rng = np.random.default_rng(1)
    both = np.stack([np.sin(T), 50.0 * np.cos(T)], axis=1)
    both += rng.normal(size=both.shape) * [0.1, 20.0]
    both[3, 0] = np.nan
    array = xr.DataArray(both, dims=("t", "o"), coords={"t": T, "o": ["a", "b"]})
    params = {"kernels": {"t": RBF(1.0)}, "criterion": Evidence(num_probes=0), "tol": 1e-3}
    learned = GridGP(**params).fit(array)
    averaged = GridGP(hyperparameters=Average(num_components=8), **params).fit(array)
    ratio = learned.noise_std_[1] / learned.noise_std_[0]
    assert averaged.noise_std_[1] / averaged.noise_std_[0] == pytest.approx(ratio, rel=1e-6)
    one, other = (m.predict({"t": [8.0]})["std"].sel(o="b") for m in (learned, averaged))
    assert 0.5 < float(other[0] / one[0]) < 3.0


def test_what_excludes_averages_and_what_time_leaves_of_them():
    with pytest.raises(ValueError, match="no density of hyperparameters"):
        GridGP(hyperparameters="average", criterion=CrossValidation()).fit(series())
    with pytest.raises(ValueError, match="num_components must be a positive integer"):
        Average(num_components=0)
    with pytest.warns(Warning, match="used up before hyperparameters were averaged over"):
        cut = fitted(8, max_seconds=1e-6)
    assert not cut.converged_
    assert len(cut.posterior_.parts) == 1
