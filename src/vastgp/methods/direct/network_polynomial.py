"""Networks with quadratic activations as polynomials of discrete weights (Evans 2022, appendix E).

With ``x^2`` as activation the output of a network is a polynomial of its weights whose coefficients are polynomials of
the inputs,

    f(x) = sum_j c_j(x) m_j(w),        c_j(x) = sum_k B_jk psi_k(x),

with monomials ``m_j`` of the weights and ``psi_k`` of the inputs. Over all hypotheses at once a monomial is a Kronecker
product vector, all of whose factors but a few are ones (E.1): only those few are kept, with their powers. Expectations
under independent weights are products of moments. The rows enter by ``y^T y``, ``Psi^T y`` and ``Psi^T Psi``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement
from math import comb
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vastgp.methods.direct.model import DiscreteLogits, DiscreteModel, with_slopes

# ((index, power), ...) in the order of the indices: what is not named has power zero.
Monomial = tuple[tuple[int, int], ...]
# Of the weights, then of the inputs.
Polynomial = dict[tuple[Monomial, Monomial], float]


class Cost(NamedTuple):
    """What a network asks for, known before any work.

    Attributes
    ----------
    weights : int
    terms : int
        Monomials of the weights in the output, ``h`` of (E.1), at most.
    products : int
        Their pairs, of which the expected square is made: ``h (h + 1) / 2``.
    input_terms : int
        Monomials of the inputs.
    """

    weights: int
    terms: int
    products: int
    input_terms: int


def network_cost(num_inputs: int, hidden: tuple[int, ...]) -> Cost:
    """Return the cost of a network by formulas: of one hidden layer O((units d^2)^2), of two O((units d^4)^2).

    A sum over ``u`` units of ``t`` terms each has ``s = u t`` terms, and its square ``s (s + 1) / 2``.
    """
    width = num_inputs + 1  # with the constant input
    weights, terms, units = 0, 1, width
    for size in hidden:
        weights += units * size
        summed = units * terms
        terms, units = summed * (summed + 1) // 2, size
    terms = terms * units + 1  # and the constant of the output
    weights += units + 1
    degree = 2 ** len(hidden)
    return Cost(weights, terms, terms * (terms + 1) // 2, comb(num_inputs + degree, degree))


@dataclass(frozen=True)
class NetworkTerms:
    """The polynomial of a network.

    Attributes
    ----------
    num_weights : int
    inputs : list of tuple
        Powers of every input in each monomial ``psi_k``.
    factors, powers : int arrays of shape (h, L)
        Which weights each ``m_j`` has and their powers; padded with power zero.
    coefficients : ndarray of shape (h, K)
        ``B``.
    layer_sizes : tuple of int
        Weights that lead into one unit of each layer, the constant one among them.
    layer_of : int array of shape (num_weights,)
    """

    num_weights: int
    inputs: list[Monomial]
    factors: np.ndarray
    powers: np.ndarray
    coefficients: np.ndarray
    layer_sizes: tuple[int, ...]
    layer_of: np.ndarray

    def input_features(self, X: np.ndarray) -> Float[np.ndarray, "n K"]:
        """Return ``psi_k`` at some rows."""
        columns = [np.prod([X[:, j] ** p for j, p in powers], axis=0) for powers in self.inputs]
        return np.stack([np.broadcast_to(column, len(X)) for column in columns], axis=1)


def network_terms(num_inputs: int, hidden: tuple[int, ...]) -> NetworkTerms:
    """Return the polynomial of a network with some hidden layers of quadratic units and a linear output.

    The first layer and the output have a constant input beside their own, so that these units have biases.
    """
    state: list[Polynomial] = [{((), ()): 1.0}]
    state += [{((), ((j, 1),)): 1.0} for j in range(num_inputs)]
    count = 0
    layer_of: list[int] = []
    sizes: list[int] = []

    def weighted_sum(polynomials: list[Polynomial], layer: int) -> Polynomial:
        """(E.3), (E.4): each input times a weight of its own, added up."""
        nonlocal count
        total: Polynomial = defaultdict(float)
        for polynomial in polynomials:
            own: Monomial = ((count, 1),)
            count += 1
            layer_of.append(layer)
            for (weights, inputs), value in polynomial.items():
                total[_times(weights, own), inputs] += value
        return total

    for layer, size in enumerate(hidden):
        sizes.append(len(state))
        state = [_squared(weighted_sum(state, layer)) for _ in range(size)]
    sizes.append(len(state) + 1)
    output = weighted_sum([*state, {((), ()): 1.0}], len(hidden))
    return _tabulated(output, count, tuple(sizes), np.array(layer_of))


def _times(first: Monomial, second: Monomial) -> Monomial:
    powers = dict(first)
    for index, power in second:
        powers[index] = powers.get(index, 0) + power
    return tuple(sorted(powers.items()))


def _squared(polynomial: Polynomial) -> Polynomial:
    """(E.6): squares, and twice the product of each pair."""
    total: Polynomial = defaultdict(float)
    items = list(polynomial.items())
    for i, j in combinations_with_replacement(range(len(items)), 2):
        (weights_i, inputs_i), value_i = items[i]
        (weights_j, inputs_j), value_j = items[j]
        key = (_times(weights_i, weights_j), _times(inputs_i, inputs_j))
        total[key] += value_i * value_j * (1.0 if i == j else 2.0)
    return total


def _tabulated(
    output: Polynomial, num_weights: int, sizes: tuple[int, ...], layer_of: np.ndarray
) -> NetworkTerms:
    monomials = sorted({weights for weights, _ in output})
    inputs = sorted({inputs for _, inputs in output})
    row = {monomial: j for j, monomial in enumerate(monomials)}
    column = {monomial: k for k, monomial in enumerate(inputs)}
    coefficients = np.zeros((len(monomials), len(inputs)))
    for (weights, of_inputs), value in output.items():
        coefficients[row[weights], column[of_inputs]] += value
    factors, powers = _padded(monomials)
    return NetworkTerms(num_weights, inputs, factors, powers, coefficients, sizes, layer_of)


def _padded(monomials: Iterable[Monomial]) -> tuple[Int[np.ndarray, "h L"], Int[np.ndarray, "h L"]]:
    listed = list(monomials)
    width = max(1, *(len(monomial) for monomial in listed))
    factors = np.zeros((len(listed), width), np.int32)
    powers = np.zeros((len(listed), width), np.int32)
    for j, monomial in enumerate(listed):
        for place, (index, power) in enumerate(monomial):
            factors[j, place], powers[j, place] = index, power
    return factors, powers


class NetworkProducts(NamedTuple):
    """Distinct products of two monomials, and which of them each pair is.

    Attributes
    ----------
    factors, powers : int arrays of shape (u, M)
    of_pair : int array of shape (h, h)
    """

    factors: np.ndarray
    powers: np.ndarray
    of_pair: np.ndarray


def network_products(terms: NetworkTerms) -> NetworkProducts:
    """Return the products that the expected square is made of (E.10)."""
    h = len(terms.factors)
    dense = np.zeros((h, terms.num_weights), np.int8)
    for place in range(terms.factors.shape[1]):
        np.add.at(
            dense, (np.arange(h), terms.factors[:, place]), terms.powers[:, place].astype(np.int8)
        )
    # a product's powers are sums of powers: a random integer combination tells them apart
    key = np.random.default_rng(0).integers(1, 2**62, terms.num_weights, dtype=np.int64)
    names = dense.astype(np.int64) @ key
    with np.errstate(over="ignore"):
        of_pair = names[:, None] + names[None, :]
    _, first, inverse = np.unique(of_pair, return_index=True, return_inverse=True)
    rows, columns = np.divmod(first, h)
    distinct = dense[rows].astype(np.int32) + dense[columns]
    width = max(1, int((distinct > 0).sum(axis=1).max()))
    factors = np.argsort(distinct == 0, axis=1, kind="stable")[:, :width].astype(np.int32)
    powers = np.take_along_axis(distinct, factors, axis=1)
    return NetworkProducts(factors, powers, inverse.reshape(h, h))


class NetworkStatistics(NamedTuple):
    """What the bound needs of the rows, for the weights' monomials and their distinct products.

    Attributes
    ----------
    count, square : number
        ``n`` and ``y^T y``.
    target : Array of shape (h,)
        ``p`` of (E.9).
    products : Array of shape (u,)
        ``V`` of (E.12), added up over the pairs with the same product.
    """

    count: Any
    square: Any
    target: Float[Any, " h"]
    products: Float[Any, " u"]


def network_statistics(
    terms: NetworkTerms,
    products: NetworkProducts,
    count: float,
    square: float,
    target: np.ndarray,
    gram: np.ndarray,
) -> NetworkStatistics:
    """Return them from the sums over the monomials of the inputs, ``Psi^T y`` and ``Psi^T Psi``."""
    B = terms.coefficients
    pairs = B @ gram @ B.T
    summed = np.bincount(products.of_pair.ravel(), pairs.ravel(), minlength=len(products.factors))
    return NetworkStatistics(float(count), float(square), B @ target, summed)


def expected_monomials(
    moments: Float[Array, "b P"], factors: Any, powers: Any
) -> Float[Array, " u"]:
    """Return the expectations of monomials of independent weights; ``moments[j, p] = E[w_j^p]``."""
    return jnp.prod(moments[factors, powers], axis=1)


def raw_moments(
    probabilities: Float[Any, "b k"], values: Float[Any, "b k"], order: int
) -> Float[Array, "b P"]:
    """Return ``E[w^p]`` of every weight, p = 0 ... order."""
    values = jnp.asarray(values)
    return jnp.stack([jnp.sum(probabilities * values**p, axis=1) for p in range(order + 1)], axis=1)


def network_elbo(
    logits: DiscreteLogits,
    model: DiscreteModel,
    statistics: NetworkStatistics,
    tables: tuple[Any, Any, Any, Any],
    order: int,
) -> Float[Array, ""]:
    """Return the exact evidence lower bound of a network (E.7)-(E.12), mean-field.

    Parameters
    ----------
    logits : DiscreteLogits
        One component.
    model : DiscreteModel
        Its likelihood is not used.
    statistics : NetworkStatistics
    tables : tuple of int arrays
        Factors and powers of the monomials, and of their products.
    order : int
        Highest power of a weight in a product.
    """
    log_q = jax.nn.log_softmax(logits.weights[0])
    q = jnp.exp(log_q)
    square = _expected_square(q, model, statistics, tables, order)
    log_noise_q = jax.nn.log_softmax(logits.noise)
    noise_q = jnp.exp(log_noise_q)
    log_mass = jnp.broadcast_to(model.prior.log_mass[0], log_q.shape)
    return (
        -0.5 * statistics.count * (noise_q @ jnp.log(2.0 * jnp.pi * model.noise))
        - 0.5 * (noise_q @ (1.0 / model.noise)) * square
        + jnp.sum(q * (log_mass - log_q))
        + noise_q @ (model.log_noise_prior - log_noise_q)
    )


def _expected_square(
    q: Float[Any, "b k"],
    model: DiscreteModel,
    statistics: NetworkStatistics,
    tables: tuple[Any, Any, Any, Any],
    order: int,
) -> Float[Array, ""]:
    """(E.8): y^T y - 2 sum_j p_j E[m_j] + sum_jk v_jk E[m_j m_k]."""
    factors, powers, product_factors, product_powers = tables
    moments = raw_moments(q, model.values, order)
    return (
        statistics.square
        - 2.0 * statistics.target @ expected_monomials(moments, factors, powers)
        + statistics.products @ expected_monomials(moments, product_factors, product_powers)
    )


network_value_and_slope = jax.jit(jax.value_and_grad(network_elbo), static_argnames="order")


@partial(jax.jit, static_argnames="order")
def single_offers(
    logits: DiscreteLogits,
    model: DiscreteModel,
    statistics: NetworkStatistics,
    tables: tuple[Any, Any, Any, Any],
    order: int,
) -> tuple[DiscreteLogits, Float[Array, " c"]]:
    """Return for each weight, and for the noise, what it would best be if all others stayed, and what that gains.

    The bound but for its entropies is linear in the probabilities ``q_j`` of each weight, so that ``g_j``, its slope by
    them, makes the best ones, ``q* ~ exp(g_j)``. They gain ``KL(q_j || q*)`` nats: also where a value has all but no
    probability, of which the slope by logits tells nothing.

    Returns
    -------
    offers : DiscreteLogits
    gains : Array of shape (b + 1,)
        The last one is the noise's.
    """
    log_q = jax.nn.log_softmax(logits.weights[0])
    log_noise_q = jax.nn.log_softmax(logits.noise)
    precision = jnp.exp(log_noise_q) @ (1.0 / model.noise)
    square, slope = jax.value_and_grad(_expected_square)(
        jnp.exp(log_q), model, statistics, tables, order
    )
    best = jax.nn.log_softmax(model.prior.log_mass[0] - 0.5 * precision * slope)
    of_noise = jax.nn.log_softmax(
        model.log_noise_prior
        - 0.5 * statistics.count * jnp.log(2.0 * jnp.pi * model.noise)
        - 0.5 * square / model.noise
    )
    gains = jnp.sum(jnp.exp(log_q) * (log_q - best), axis=1)
    gain_of_noise = jnp.sum(jnp.exp(log_noise_q) * (log_noise_q - of_noise))
    offers = logits._replace(weights=with_slopes(best)[None], noise=with_slopes(of_noise))
    return offers, jnp.append(gains, gain_of_noise)
