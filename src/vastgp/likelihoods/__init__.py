"""Likelihoods: how observations scatter around the function."""

from vastgp.likelihoods.base import Likelihood
from vastgp.likelihoods.bernoulli import Bernoulli
from vastgp.likelihoods.exposed import Exposed
from vastgp.likelihoods.gaussian import Gaussian
from vastgp.likelihoods.heteroskedastic import HeteroskedasticGaussian
from vastgp.likelihoods.laplace import Laplace
from vastgp.likelihoods.locally_scaled import LocallyScaled
from vastgp.likelihoods.multinomial_probit import MultinomialProbit
from vastgp.likelihoods.negative_binomial import NegativeBinomial
from vastgp.likelihoods.one_vs_rest import OneVsRest
from vastgp.likelihoods.poisson import Poisson
from vastgp.likelihoods.poisson_log_normal import PoissonLogNormal
from vastgp.likelihoods.softmax import Softmax
from vastgp.likelihoods.spec import from_name, from_spec, to_spec
from vastgp.likelihoods.student_t import StudentT
from vastgp.likelihoods.weighted import Weighted

__all__ = [
    "Bernoulli",
    "Exposed",
    "Gaussian",
    "HeteroskedasticGaussian",
    "Laplace",
    "Likelihood",
    "LocallyScaled",
    "MultinomialProbit",
    "NegativeBinomial",
    "OneVsRest",
    "Poisson",
    "PoissonLogNormal",
    "Softmax",
    "StudentT",
    "Weighted",
    "from_name",
    "from_spec",
    "to_spec",
]
