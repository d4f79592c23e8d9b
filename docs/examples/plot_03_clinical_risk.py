"""
Predict a risk from a clinical table with gaps
==============================================

Who comes back to the hospital within thirty days? The table has classes, text and gaps: not every blood value is taken
of every patient, and which ones are taken says something, too. What is wanted is no label but a probability that can be
trusted.
"""

import textwrap
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import vastgp
from vastgp.plots import importance_plot, reliability_plot

# Patients, made up. Lactate is measured of those who look ill; smoking is often not written down.
rng = np.random.default_rng(0)
n = 1400
age = rng.normal(63, 15, n).clip(18, 98).round()
severity = rng.normal(0, 1, n) + (age - 63) / 30
lactate = np.exp(0.4 + 0.35 * severity + 0.2 * rng.normal(size=n)).round(1)
ward = rng.choice(["cardiology", "medicine", "surgery"], n, p=[0.3, 0.5, 0.2])
smoker = rng.choice(["never", "former", "current", None], n, p=[0.35, 0.2, 0.2, 0.25])
logit = -1.3 + 1.1 * severity + 0.7 * (smoker == "current") - 0.8 * (ward == "surgery")
patients = pd.DataFrame({
    "age": age, "ward": ward, "smoker": smoker,
    "pressure": (130 - 8 * severity + rng.normal(0, 12, n)).round(),
    "lactate": np.where(severity + rng.normal(size=n) > 0.3, lactate, np.nan),
    "back": np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-logit)), "yes", "no"),
})  # fmt: skip
seen, later = patients[:900], patients[900:]
print(seen.head(4).to_string(index=False))
print(f"back within thirty days: {(seen['back'] == 'yes').mean():.0%}")

# %%
# Fit
# ---

model = vastgp.GPClassifier(max_seconds=30).fit(seen, "back")
print(model.leaderboard_)
print()
print(model.encoder_.summary())

# %%
# A gap is kept as one: the model learns what it means that a value was not taken, and knows that the value is unknown.
#
# Probabilities
# -------------
# Are they right? Of the later patients with a predicted risk of 30 %, about three in ten should come back: the points
# should lie on the diagonal, within their bars. On the right, which columns carry the prediction.

proba = model.predict_proba(later)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 5.4), layout="constrained")
reliability_plot(later["back"], proba, model.classes_, bins=8, ax=left)
importance_plot(model.importance_, ax=right)
plt.show()

# %%
# Classes are as common among those that the model calls unlikely as it says; sorting the patients by risk is another
# question. How many of those who came back are among the tenth, or the third, at highest risk?

back = (later["back"] == "yes").to_numpy()
by_risk = np.argsort(-proba[:, 1])
for share in (0.1, 0.33):
    first = by_risk[: int(share * len(later))]
    print(
        f"the {share:.0%} at highest risk hold {back[first].sum() / back.sum():.0%} of those who came back"
    )

# %%
# One patient, and what is not known of her
# -----------------------------------------

her = pd.DataFrame(
    {"age": [71], "ward": ["medicine"], "smoker": ["former"], "pressure": [118], "lactate": [2.4]}
)
for changed in ({}, {"lactate": np.nan}, {"smoker": None}, {"ward": "oncology"}, {"age": 104}):
    row = her.assign(**changed)
    risk, outside = model.predict_proba(row)[0, 1], model.outside(row)[0]
    print(
        f"{changed or 'as she is'!s:24}  risk {risk:.2f}  {'outside what was seen' if outside else ''}"
    )

# %%
# A ward that the model has never seen counts as far from each that it has, and the risk moves towards what is usual.
#
# What is refused
# ---------------
# A value that is of another kind than in the fit is not guessed at. The message names the column, what it held, and
# what to do.

for name, value in (("pressure", "high"), ("lactate", np.inf)):
    try:
        model.predict_proba(her.assign(**{name: [value]}))
    except ValueError as error:
        print(textwrap.fill(str(error), 90), end="\n\n")

# %%
# The report and the model are files; neither needs a network, and loading a model executes nothing.

folder = Path(mkdtemp())
model.report(folder / "report.html")
model.save(folder / "risk.vastgp")
again = vastgp.load(folder / "risk.vastgp")
print(
    sorted(path.name for path in folder.iterdir()),
    np.array_equal(again.predict_proba(later), proba),
)
