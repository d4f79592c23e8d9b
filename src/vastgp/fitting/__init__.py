"""How any fit runs: loop, checkpoints, history, progress, L-BFGS, Adam, starting values, evidence of few rows."""
