"""Fixed bases with learned weight priors, GRIEF among them."""
