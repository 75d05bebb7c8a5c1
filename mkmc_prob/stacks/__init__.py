"""Stacks of incomplete kernels: building, checking, description and preprocessing."""
