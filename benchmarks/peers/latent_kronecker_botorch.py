"""BoTorch's latent Kronecker Gaussian process on a grid with gaps, from and to files of ../grid_fields.py.

    python benchmarks/grid_fields.py --dataset piv_soapfilm --write piv.npz
    /tmp/peers/bin/python benchmarks/peers/latent_kronecker_botorch.py piv.npz --out piv_botorch.npz --seconds 200
    python benchmarks/grid_fields.py --dataset piv_soapfilm --method botorch --read piv_botorch.npz

Runs in an environment of its own (``README.md``). The model has two factors, one over several inputs and one over a
single input: here all dimensions but the last, and the last, which makes its products cheapest. Settings are BoTorch's
own: Matern-5/2 with a lengthscale for each input, inputs scaled to the unit cube, conjugate gradients to a residual of
0.01. Outputs are fitted one by one. Variances are those of its own joint samples.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.latent_kronecker_gp import LatentKroneckerGP
from gpytorch.mlls import ExactMarginalLogLikelihood


def unit(axis: np.ndarray) -> np.ndarray:
    """Return coordinates between 0 and 1."""
    return (axis - axis[0]) / (axis[-1] - axis[0])


def krige(
    values: np.ndarray, axes: list[np.ndarray], seconds: float, num_samples: int
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Return mean and standard deviation of observations on the whole grid, and what was learned."""
    *first, last = [unit(axis) for axis in axes]
    X = torch.as_tensor(np.stack([g.ravel() for g in np.meshgrid(*first, indexing="ij")], axis=1))
    T = torch.as_tensor(last)[:, None]
    shift, scale = np.nanmean(values), np.nanstd(values)
    Y = torch.as_tensor(((values - shift) / scale).reshape(len(X), len(T)))
    model = LatentKroneckerGP(X, T, Y, outcome_transform=None)
    criterion = ExactMarginalLogLikelihood(model.likelihood, model)
    began = time.perf_counter()
    with model.use_iterative_methods(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit_gpytorch_mll(criterion, optimizer_kwargs={"timeout_sec": seconds})
    learning = time.perf_counter() - began
    model.eval()
    # `posterior` forms covariances of all test and training points: 10 GB here. What draws its samples does not, and
    # with zeros in place of normal numbers it gives the mean.
    numbers = 2 * Y.numel() + int(torch.isfinite(Y).sum())
    normals = torch.randn(num_samples, numbers, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        mean = model._rsample_from_base_samples(X, T, torch.zeros(1, numbers))[0].numpy()
        samples = model._rsample_from_base_samples(X, T, normals).numpy()
    mean, samples = mean.reshape(values.shape), samples.reshape(num_samples, *values.shape)
    noise = float(model.likelihood.noise)
    variance = ((samples - mean) ** 2).mean(axis=0) + noise
    more = {
        "learn_seconds": learning,
        "noise_std": noise**0.5 * float(scale),
        "lengthscales": [
            np.ravel(model.covar_module_X.lengthscale.detach().numpy()).tolist(),
            np.ravel(model.covar_module_T.base_kernel.lengthscale.detach().numpy()).tolist(),
        ],
        "warnings": sorted({str(w.message).split("\n")[0][:120] for w in caught}),
    }
    return mean * scale + shift, np.sqrt(variance) * scale, more


def main() -> None:
    """Fit one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--out", required=True)
    parser.add_argument(
        "--seconds", type=float, default=200.0, help="budget of learning, of all outputs"
    )
    parser.add_argument("--samples", type=int, default=16)
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    with np.load(args.file) as stored:
        values = stored["values"]
        axes = [stored[f"axis{i}"].astype(float) for i in range(int(stored["num_axes"]))]
    # outputs, if any, are the first dimension
    outputs = values.reshape(-1, *[len(axis) for axis in axes])
    began = time.perf_counter()
    mean, std, more = zip(
        *(krige(each, axes, args.seconds / len(outputs), args.samples) for each in outputs),
        strict=True,
    )
    seconds = time.perf_counter() - began
    print(f"{seconds:.1f} s", more, flush=True)
    np.savez(
        args.out,
        mean=np.stack(mean).reshape(values.shape),
        std=np.stack(std).reshape(values.shape),
        seconds=seconds,
        more=np.array(str(list(more))),
    )


if __name__ == "__main__":
    main()
