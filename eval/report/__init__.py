"""`python -m eval report`: what README and docs show of experiments on one page, with where each figure is from."""
