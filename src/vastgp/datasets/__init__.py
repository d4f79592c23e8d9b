"""Real data in the package, for the demo, the documentation and first steps."""

from vastgp.datasets.protein import RegressionData, load_protein

__all__ = ["RegressionData", "load_protein"]
