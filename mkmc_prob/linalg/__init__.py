"""Positive definite matrices as plain arrays: factors, blocks, products, spectra."""
