"""Steps that touch what they must and nothing else; unbiased minibatches; fresh neighbours; the sparse solver."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vastgp._precision import precision
from vastgp.data import OwnNoise, Standardizer, as_rows, observations
from vastgp.fitting.run import OutOfTime, Run
from vastgp.kernels import RBF, Matern32, Matern52
from vastgp.kernels.metric import metric_lengthscales
from vastgp.likelihoods import Bernoulli, Gaussian, Poisson, Softmax, StudentT
from vastgp.methods.swsgp import patches, solution
from vastgp.methods.swsgp.fit import _stop_if_late, fit_neighbourhoods
from vastgp.methods.swsgp.options import SwsgpOptions
from vastgp.methods.swsgp.sparse import fit_sparse, given_means
from vastgp.methods.swsgp.sparse_system import build_sparse
from vastgp.methods.swsgp.state import Variables, start_state
from vastgp.methods.swsgp.step import bound, one_step
from vastgp.methods.swsgp.training import Chunks, fit_swsgp

KERNEL, LIKELIHOOD = Matern52(np.array([0.7, 1.3])), Gaussian(0.1)


def training_rows(n=300, seed=0, own_noise=False):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    rows = as_rows(X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n), require_y=True)
    if own_noise:
        rows = OwnNoise(rng.choice([0.0, 0.2, 2.0], n), rng.uniform(0.2, 4.0, n)).attach(rows)
    return rows, Standardizer().fit(rows)


def chunks_and_state(options, size=120, likelihood=LIKELIHOOD, own_noise=False):
    rows, scaling = training_rows(own_noise=own_noise)
    Z = scaling.transform_X(np.random.default_rng(1).uniform(-2, 2, (size, 2)))
    state = start_state(KERNEL, likelihood, Z, options, metric_lengthscales(KERNEL, 2), "float64")
    return Chunks(rows, scaling, (KERNEL, likelihood), options, 0, "float64", size), state


@pytest.fixture
def double():
    with precision("float64"):
        yield


@pytest.mark.parametrize(
    ("covariance", "prior", "move"),
    [
        ("diagonal", "ordered", False),
        ("diagonal", "neighborhoods", True),
        ("full", "ordered", True),
    ],
)
def test_rows_that_a_step_does_not_touch_keep_every_bit(double, covariance, prior, move):
    options = SwsgpOptions(5, covariance, prior, row_batch=4, move=move)
    chunks, state = chunks_and_state(options)
    state, _ = chunks(state, 0, 1)  # from here on Adam's averages are not zero
    parts = (state.variables, state.first, state.second, state.touched)
    before = jax.tree.map(lambda leaf: np.array(leaf), parts)
    touched = np.asarray(chunks.touching(chunks.draw(1, 1)).rows[0])
    touched = touched[touched < 120]
    state, _ = chunks(state, 1, 1)
    after = jax.tree.map(np.asarray, (state.variables, state.first, state.second, state.touched))
    others = np.setdiff1d(np.arange(120), touched)
    assert 5 <= len(touched) < 60
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old[others], new[others])
    for name in ("mean", "spread"):
        old, new = (getattr(tree[0], name)[touched] for tree in (before, after))
        assert np.all(np.any(old != new, axis=tuple(range(1, old.ndim))))
    assert np.any(before[0].Z[touched] != after[0].Z[touched]) == move


@pytest.mark.statistical
@pytest.mark.parametrize("prior", ["neighborhoods", "ordered"])
def test_drawn_minibatches_are_unbiased(double, prior):
    """1500 draws of 8 of 300 rows (and 8 of 120 inducing inputs): within four standard errors of all rows at once."""
    chunks, state = chunks_and_state(SwsgpOptions(5, prior=prior, row_batch=8))
    rng = np.random.default_rng(2)
    variables = Variables(
        jnp.asarray(rng.normal(size=(120, 1))), state.variables.spread, state.variables.Z
    )
    state = state._replace(variables=variables)
    value = jax.jit(
        lambda plan, batch: bound(
            plan, chunks.constants, jax.tree.map(lambda leaf: leaf.at[batch.rows].get(mode="clip"), variables),
            state.hyper, batch,
        ),
        static_argnums=0,
    )  # fmt: skip
    chunks.make_index(state)
    batches = chunks.touching(chunks.draw(0, 1500))
    each = jax.jit(jax.vmap(lambda batch: value(chunks.plan, batch)))(batches)
    found = np.asarray(each)[:1500]
    everything, _ = chunks_and_state(SwsgpOptions(5, prior=prior, row_batch=300))
    everything.make_index(state)
    whole = float(
        value(
            everything.plan,
            jax.tree.map(lambda leaf: leaf[0], everything.touching(everything.draw(0, 1))),
        )
    )
    error = np.std(found, ddof=1) / 1500**0.5
    assert abs(np.mean(found) - whole) < 4.0 * error
    assert error < 0.05 * abs(whole)


@pytest.mark.parametrize("prior", ["neighborhoods", "ordered"])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_a_step_factorises_one_batch(double, covariance, prior):
    """Two that do not depend on each other wait for each other's threads, for ever where there are two of these."""
    chunks, state = chunks_and_state(SwsgpOptions(5, covariance, prior, row_batch=8))
    chunks.make_index(state)
    batch = jax.tree.map(lambda leaf: leaf[0], chunks.touching(chunks.draw(0, 1)))
    step = jax.make_jaxpr(lambda *given: one_step(chunks.plan, *given))
    assert str(step(chunks.constants, state, batch, 0)).count(" cholesky") == 1


def test_neighbours_are_searched_anew_when_too_many_have_changed(double):
    chunks, state = chunks_and_state(SwsgpOptions(5, row_batch=4, stale_share=0.1))
    state, told = chunks(state, 0, 50)
    assert told["searches"] == 1.0
    state, told = chunks(_stretched(state, [0.001, 0.0]), 200, 50)
    assert told["searches"] == 1.0 and told["stale"] < 0.1
    state = _stretched(state, [1.5, -1.0])
    metric = np.exp(np.asarray(state.hyper[0].lengthscales))
    state, told = chunks(state, 400, 50)
    assert told["searches"] == 2.0 and told["stale"] > 0.1
    np.testing.assert_allclose(state.metric, metric)


def _stretched(state, by):
    kernel, likelihood = state.hyper
    leaves, tree = jax.tree.flatten(kernel)
    return state._replace(
        hyper=(jax.tree.unflatten(tree, [leaves[0] + jnp.asarray(by), *leaves[1:]]), likelihood)
    )


def test_metric_of_sums_and_products():
    np.testing.assert_allclose(metric_lengthscales(RBF([0.5, 2.0]), 2), [0.5, 2.0])
    np.testing.assert_allclose(metric_lengthscales(RBF(0.5), 3), [0.5] * 3)
    total = RBF(1.0, 3.0) + Matern32(0.5, 1.0)
    np.testing.assert_allclose(metric_lengthscales(total, 1), (4.0 / (3.0 + 4.0)) ** 0.5)
    both = RBF(1.0) * RBF(0.5)
    np.testing.assert_allclose(metric_lengthscales(both, 1), 5.0**-0.5)


# ---------------------------------------------------------------- the sparse solver


def test_weights_end_early_where_all_of_them_would_end_too_late(monkeypatch):
    rows, scaling = training_rows()
    Z = scaling.transform_X(np.random.default_rng(1).uniform(-2, 2, (80, 2)))
    run, clock, shares = Run(max_seconds=10.0), [0.0], []
    monkeypatch.setattr(Run, "elapsed", lambda self: clock[0])
    # tiles of 16 rows
    monkeypatch.setattr("vastgp.methods.swsgp.sparse_system._TILE_ENTRIES", 1024)

    def build(seconds):
        ends = _stop_if_late(run)
        clock[0], shares[:] = 0.0, []

        def on_tile(share):
            clock[0] += seconds * (20 if not shares else 1)  # the first compiles its program
            shares.append(share)
            ends(share)

        return build_sparse(rows, scaling, KERNEL, Z, SwsgpOptions(8), on_tile=on_tile)

    whole = build(0.1)
    assert shares == sorted(shares) and shares[-1] == 1.0 and len(shares) == 19 + 5
    np.testing.assert_array_equal(
        whole.A.toarray(), build_sparse(rows, scaling, KERNEL, Z, SwsgpOptions(8)).A.toarray()
    )
    # 24 tiles of 0.25 s would end at 11 s, which the second of them tells
    with pytest.raises(OutOfTime, match="too little of max_seconds"):
        build(0.25)
    assert len(shares) == 2


@pytest.mark.parametrize(("taper", "own_noise"), [(False, False), (True, False), (True, True)])
def test_the_sparse_solution_is_the_maximum_for_gaussian_noise(double, taper, own_noise):
    rows, scaling = training_rows(own_noise=own_noise)
    Z = scaling.transform_X(np.random.default_rng(1).uniform(-2, 2, (80, 2)))
    options = SwsgpOptions(8, taper=taper)
    system = build_sparse(rows, scaling, KERNEL, Z, options)
    found = fit_sparse(system, LIKELIHOOD, tol=1e-10, run=Run())
    assert found.loop.converged
    A, B = system.A.toarray(), system.B.toarray()
    own = np.eye(80) - B
    y = observations.targets(system.y)
    noise = np.broadcast_to(observations.noise_variances(system.y, 0.1), 300)
    precision_matrix = A.T @ (A / noise[:, None]) + own.T @ (own / system.v[:, None])
    np.testing.assert_allclose(
        found.mean, np.linalg.solve(precision_matrix, A.T @ (y / noise))[:, None], atol=1e-6
    )
    np.testing.assert_allclose(
        found.variances[:, 0], 1.0 / np.diagonal(precision_matrix), rtol=1e-10
    )
    for step in (1e-3, -1e-3):
        assert system.bound(LIKELIHOOD, found.mean + step, found.variances) < found.bound
        assert system.bound(LIKELIHOOD, found.mean, found.variances * (1 + step)) < found.bound


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_solved_for_after_learning_is_predicted_as_it_was_solved(dtype):
    """In float64, whatever steps had: with their jitter the latent deviation was fifteen times as large as it is."""
    rows, scaling = training_rows()
    Z = scaling.transform_X(np.random.default_rng(1).uniform(-2, 2, (80, 2)))
    options = SwsgpOptions(32, max_steps=20, learning_rate=1e-3, noise_floor=1e-6, jitter=1e-10)
    answer = fit_neighbourhoods(
        rows, scaling, (RBF(2.0), Gaussian(1e-4)), Z, options, Run(), sparse=True, dtype=dtype
    )
    posterior = answer.posterior()
    system = build_sparse(rows, scaling, posterior.kernel, posterior.Z, options)
    given = posterior.mean_u, posterior.spread
    found = posterior.mean_and_latent_variance(scaling.transform_X(rows.X[:]))
    for mine, of_system in zip(found, system.moments(*given), strict=True):
        np.testing.assert_allclose(mine, of_system, rtol=1e-6, atol=1e-9)
    assert answer.attributes["diagnosis_"]["objective"] == pytest.approx(
        system.bound(answer.likelihood, *given), rel=1e-6
    )


@pytest.mark.parametrize("most_coarse", [0, 1000])
def test_patches_solve_the_same_system_in_few_iterations(double, monkeypatch, most_coarse):
    """Several patches that overlap, with constants and with linear functions as the second level."""
    rows, scaling = training_rows()
    Z = scaling.transform_X(np.random.default_rng(1).uniform(-2, 2, (120, 2)))
    system = build_sparse(rows, scaling, RBF(2.0), Z, SwsgpOptions(8))
    # the same system with the diagonal and with patches alone
    monkeypatch.setattr(patches, "_OWN", 16)
    monkeypatch.setattr(patches, "_OTHERS", 12)
    monkeypatch.setattr(patches, "_MOST_COARSE", most_coarse)
    ran, iterated = [], solution._iterated

    def counted(product, b, start, inverse, *rest):
        ran.append(0)

        def count(r):
            ran[-1] += 1
            return inverse(r)

        return iterated(product, b, start, count, *rest)

    monkeypatch.setattr(solution, "_iterated", counted)
    monkeypatch.setattr(solution, "_PLAIN", 1000)
    plain = fit_sparse(system, LIKELIHOOD, tol=1e-9, run=Run())
    with_diagonal = ran[0]
    ran.clear()
    monkeypatch.setattr(solution, "_PLAIN", 1)
    found = fit_sparse(system, LIKELIHOOD, tol=1e-9, run=Run())
    assert found.loop.converged and ran[0] == 1 and ran[1] < 0.5 * with_diagonal
    np.testing.assert_allclose(found.mean, plain.mean, atol=1e-6 * np.abs(plain.mean).max())
    root = system.prior_root()
    where = patches.patches_of(system.points, root)
    inverse = patches.patch_inverse(where, system.A.tocsc(), np.full(300, 10.0), root)
    matrix = np.column_stack([inverse(one) for one in np.eye(120)])
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-8, atol=1e-10 * np.abs(matrix).max())
    assert np.linalg.eigvalsh(matrix).min() > 0.0


@pytest.mark.parametrize(("taper", "own_noise"), [(False, False), (True, False), (True, True)])
def test_the_sparse_bound_is_the_one_that_steps_estimate(double, taper, own_noise):
    options = SwsgpOptions(6, row_batch=300, taper=taper, learn=False)
    chunks, state = chunks_and_state(options, own_noise=own_noise)
    Z = np.asarray(state.variables.Z)
    system = build_sparse(chunks.rows, chunks.standardizer, KERNEL, Z, chunks.options)
    chunks.make_index(state)
    batch = jax.tree.map(lambda leaf: leaf[0], chunks.touching(chunks.draw(0, 1)))
    value = jax.jit(bound, static_argnums=0)(
        chunks.plan, chunks.constants, state.variables, state.hyper, batch
    )
    variances = np.exp(np.asarray(state.variables.spread))
    assert system.bound(LIKELIHOOD, np.zeros((120, 1)), variances) == pytest.approx(
        float(value), rel=1e-7
    )


@pytest.mark.parametrize("likelihood", [Bernoulli("logit"), StudentT(0.3), Softmax(3)])
def test_newton_steps_end_where_the_slope_is_zero(double, likelihood):
    rows, scaling = training_rows()
    if not likelihood.scales_target:
        above = rows.y > 0.0
        right = above & (rows.X[:, 0] > 0.0)
        rows.y = 2.0 * above - 1.0 if isinstance(likelihood, Bernoulli) else 1.0 * above + right
        scaling = Standardizer().fit(as_rows(rows.X))
    Z = scaling.transform_X(np.random.default_rng(1).uniform(-2, 2, (60, 2)))
    system = build_sparse(rows, scaling, KERNEL, Z, SwsgpOptions(8))
    # classes one by one: each step sees the others' functions as they were
    found = fit_sparse(
        system, likelihood, tol=1e-6 if likelihood.num_latent > 1 else 1e-8, run=Run()
    )
    assert found.loop.converged and np.all(np.diff(found.loop.history.objective) >= 0.0)
    moments = system.moments(found.mean, found.variances)
    alpha, _ = system.at_targets(likelihood, "sites", *moments)
    alpha = np.atleast_2d(np.asarray(alpha)).T
    slope = system.A.T @ alpha - np.stack([system.prior_product(m) for m in found.mean.T], axis=1)
    assert np.max(np.abs(slope)) < 1e-2 * np.max(np.abs(system.A.T @ np.abs(alpha)))


def test_without_a_finite_bound_newton_steps_do_not_converge(double):
    """Counts under a prior whose averages of ``exp(f)`` overflow: no step is better than none."""
    rows, scaling = training_rows()
    rows.y = np.random.default_rng(0).poisson(np.exp(rows.X[:, 0])).astype(float)
    scaling = Standardizer().fit(as_rows(rows.X))
    Z = scaling.transform_X(np.random.default_rng(1).uniform(-2, 2, (20, 2)))
    system = build_sparse(rows, scaling, RBF(0.01, 5000.0), Z, SwsgpOptions(8))
    found = fit_sparse(system, Poisson(1.0), tol=1e-6, run=Run())
    assert not found.loop.converged and np.all(found.mean == 0.0)
    assert "the bound of the evidence is -inf, however short a step" in found.loop.reason


@pytest.mark.parametrize("own_noise", [False, True])
def test_variances_and_noise_of_a_stopped_fit_are_those_of_its_means(double, own_noise):
    """Of no mean at all: the noise is the target's variance, and both are at their maximum of the bound."""
    rows, scaling = training_rows(own_noise=own_noise)
    Z = scaling.transform_X(np.random.default_rng(1).uniform(-2, 2, (80, 2)))
    system = build_sparse(rows, scaling, KERNEL, Z, SwsgpOptions(8))
    stopped = fit_sparse(system, LIKELIHOOD, tol=1e-6, run=Run(1e-9))
    assert not stopped.loop.converged and np.all(stopped.mean == 0.0)
    found, noise = given_means(system, stopped, 1e-3)
    assert found.bound > system.bound(LIKELIHOOD, stopped.mean, stopped.variances) + 100.0
    assert 1.0 < float(noise.noise_variance) < 1.5
    for step in (0.99, 1.01):
        other = Gaussian(step * float(noise.noise_variance))
        assert system.bound(other, found.mean, found.variances) < found.bound + 0.01
        assert system.bound(noise, found.mean, step * found.variances) < found.bound


def test_stochastic_steps_come_to_the_sparse_solution():
    rows, scaling = training_rows()
    Z = scaling.transform_X(np.random.default_rng(1).uniform(-2, 2, (40, 2)))
    options = SwsgpOptions(
        8, row_batch=100, learn=False, half_life=100.0, learning_rate=0.03, max_steps=2500, tol=1e-9
    )
    fit = fit_swsgp(rows, scaling, KERNEL, LIKELIHOOD, Z, options, Run())
    with precision("float64"):
        system = build_sparse(rows, scaling, KERNEL, Z, options)
        best = fit_sparse(system, LIKELIHOOD, tol=1e-10, run=Run())
        reached = system.bound(LIKELIHOOD, fit.mean, fit.spread)
        start = system.bound(LIKELIHOOD, 0.0 * best.mean, best.variances)
    assert reached <= best.bound
    assert best.bound - reached < 0.01 * (best.bound - start)
