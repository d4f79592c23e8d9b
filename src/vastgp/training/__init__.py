"""How objectives are maximised: loops, checkpoints, L-BFGS, starting values."""
