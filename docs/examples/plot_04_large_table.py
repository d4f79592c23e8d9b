"""
Fit a large table with a method of your choice
==============================================

Proteins are long chains that fold into a shape. Programs propose such shapes ("decoys"), and the question is how far a
proposal is from the truth when only nine simple properties of it are known. The data come with vastgp.
"""

from vastgp import QSGPRegressor, datasets, metrics, plots
from vastgp.options import Subset

data = datasets.load_protein()
print(f"{len(data.y_train):,} training rows, {len(data.y_test):,} test rows")
print("features:", *data.feature_names, sep="\n  ")
print("target:", data.target_name)

# %%
# Fitting takes one line. Nothing needs scaling. To keep this page quick it uses a twentieth of the rows, names the
# kernel, takes few basis functions and finds the lengthscales from 500 rows; leave the arguments away for a model as
# good as the data allow.

rows = slice(0, 2000)
model = QSGPRegressor(
    kernel="matern32", num_basis=2000, hyperparameters=Subset(rows=500), random_state=0
)
model.fit(data.X_train[rows], data.y_train[rows])

print("converged:", model.converged_)
for name, value in model.diagnosis_.items():
    print(f"  {name}: {value}")

# %%
# The kernel says what was learned. Its lengthscales are in the units of the features: how far one has to move along
# a feature before the target changes much. Compared with the spread of the feature they show which features matter.

reach = model.kernel_.lengthscales / data.X_train[rows].std(axis=0)
print("lengthscales, in standard deviations of the feature")
for i in reach.argsort():
    print(f"{reach[i]:8.2f}  {data.feature_names[i]}")

# %%
# A prediction is a mean and the standard deviation of a new observation, both in the units of the target.

mean, std = model.predict(data.X_test, return_std=True)
low, high = mean - 1.96 * std, mean + 1.96 * std
print("predicted    95 % between    observed")
for i in range(4):
    print(f"{mean[i]:9.2f} {low[i]:8.2f} {high[i]:7.2f} {data.y_test[i]:11.2f}")

# %%
# How good is it? The error alone says little about the intervals, so look at both.

y = data.y_test
print(f"spread of the target  {y.std():.3f}")
print(f"RMSE                  {metrics.rmse(y, mean):.3f}")
print(f"NLPD                  {metrics.nlpd(y, mean, std):.3f}   (lower is better)")
print(f"95 % coverage         {metrics.coverage(y, mean, std):.3f}")

# %%
# The calibration plot asks the same at every level at once. A calibrated model has a flat histogram and a curve
# on the diagonal.

plots.calibration_plot(y, mean, std)
