"""Local experts of the SWSGP paper's Table 3: inductive and transductive Gaussian processes.

    VASTGP_DATA=... python benchmarks/local_gps.py --data kin8nm

64 centres by k-means, each with an expert fitted to the 100 training rows nearest to it. Inductive (Kim et al. 2005): a
row is predicted by the expert of the nearest centre. Transductive (Urtasun and Darrell 2008): by a Gaussian process on
the 100 training rows nearest to the row itself, with the hyperparameters of the nearest centre's expert.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.cluster import KMeans
from sklearn.neighbors import KDTree

from vastgp import ExactGPRegressor
from vastgp._precision import precision
from vastgp.kernels.matrices import kernel_matrix
from vastgp.metrics import coverage, nlpd, rmse

EXPERTS, ROWS = 64, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    with np.load(Path(os.environ["VASTGP_DATA"]) / f"{arguments.data}.npz") as file:
        X, y, n = file["X"], file["y"], int(file["n"])
        test = np.unpackbits(file["test_mask_packed"], axis=1, count=n).astype(bool)[
            arguments.split
        ]
    centre, scale, middle, unit = X[~test].mean(0), X[~test].std(0), y[~test].mean(), y[~test].std()
    inputs, target = (X[~test] - centre) / scale, (y[~test] - middle) / unit
    new, truth = (X[test] - centre) / scale, y[test]
    began = time.perf_counter()
    centres = KMeans(EXPERTS, n_init=1, random_state=0).fit(inputs).cluster_centers_
    tree = KDTree(inputs)
    experts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in tree.query(centres, ROWS, return_distance=False):
            experts.append(ExactGPRegressor("matern52").fit(inputs[rows], target[rows]))
    own = KDTree(centres).query(new, 1, return_distance=False)[:, 0]
    inductive = np.empty((2, len(new)))
    for expert in np.unique(own):
        here = own == expert
        inductive[:, here] = experts[expert].predict(new[here], return_std=True)
    transductive = np.empty_like(inductive)
    near = tree.query(new, ROWS, return_distance=False)
    with precision("float64"):
        for i, rows in enumerate(near):
            expert = experts[own[i]]
            kernel, noise = expert.kernel_, float(expert.likelihood_.noise_variance)
            mean = target[rows].mean()
            K = np.asarray(kernel_matrix(kernel, inputs[rows], inputs[rows])) + noise * np.eye(ROWS)
            k = np.asarray(kernel_matrix(kernel, inputs[rows], new[i : i + 1]))[:, 0]
            factor = cho_factor(K)
            variance = float(kernel.total_variance()) - k @ cho_solve(factor, k) + noise
            transductive[:, i] = mean + k @ cho_solve(factor, target[rows] - mean), variance**0.5
    seconds = time.perf_counter() - began
    for name, (mean, std) in (("inductive", inductive), ("transductive", transductive)):
        mean, std = mean * unit + middle, std * unit
        line = {
            "data": arguments.data, "split": arguments.split, "label": f"{name} GPs", "rmse": rmse(truth, mean),
            "nlpd": nlpd(truth, mean, std), "coverage": coverage(truth, mean, std), "seconds_of_both": seconds,
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
