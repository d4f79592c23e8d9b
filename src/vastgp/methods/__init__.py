"""One package a method: its estimators, objectives, steps and posteriors; methods never import each other."""
