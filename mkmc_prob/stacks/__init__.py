"""Labelled stacks of incomplete kernels: built, checked, described and preprocessed."""
