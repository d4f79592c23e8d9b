"""
A first model, from table to trusted interval
=============================================

Proteins are long chains that fold into a shape. Programs propose such shapes ("decoys"), and the question is how far a
proposal is from the truth when only nine simple properties of it are known. The data come with vastgp.
"""

from vastgp import QSGPRegressor, datasets, metrics, plots

data = datasets.load_protein()
print(
    f"{len(data.y_train):,} training rows, {len(data.y_test):,} test rows, target: {data.target_name}"
)
print("features:", ", ".join(data.feature_names))

# %%
# Fitting takes one line. Nothing needs scaling. To keep this page quick it uses a tenth of the rows, a small
# model, and at most a minute; leave the arguments away for a model as good as the data allow.

rows = slice(0, 4000)
model = QSGPRegressor(num_basis=2000, max_seconds=60, random_state=0)
model.fit(data.X_train[rows], data.y_train[rows])
print(f"converged: {model.converged_} after {model.n_iter_} iterations")
print("kernel:", model.kernel_)

# %%
# ``kernel_.lengthscales`` are in the units of the features: how far one has to move along a feature before the target
# changes much. Compared with the spread of the feature they show which features matter.

spread = data.X_train[rows].std(axis=0)
for name, reach in sorted(
    zip(data.feature_names, model.kernel_.lengthscales / spread, strict=True),
    key=lambda pair: pair[1],
):
    print(f"{name:38s} lengthscale = {reach:6.2f} standard deviations")

# %%
# A prediction is a mean and the standard deviation of a new observation, both in the units of the target.

mean, std = model.predict(data.X_test, return_std=True)
for i in range(3):
    low, high = mean[i] - 1.96 * std[i], mean[i] + 1.96 * std[i]
    print(
        f"predicted {mean[i]:5.2f}, 95 % between {low:5.2f} and {high:5.2f}; observed {data.y_test[i]:5.2f}"
    )

# %%
# How good is it? The error alone says little about the intervals, so look at both.

print(
    f"RMSE           {metrics.rmse(data.y_test, mean):.3f}   (target's standard deviation {data.y_train.std():.3f})"
)
print(f"NLPD           {metrics.nlpd(data.y_test, mean, std):.3f}   (lower is better)")
print(f"95 % coverage  {metrics.coverage(data.y_test, mean, std):.3f}   (should be near 0.95)")

# %%
# The calibration plot asks the same at every level at once. A calibrated model has a flat histogram and a curve
# on the diagonal.

plots.calibration_plot(data.y_test, mean, std)

# %%
# The trace shows how the fit got there.

plots.training_trace(model.history_)
