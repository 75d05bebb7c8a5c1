"""Kernel matrices computed from features, graphs and distances."""
