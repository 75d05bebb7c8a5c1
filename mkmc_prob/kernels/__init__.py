"""Kernel matrices computed from features, graphs and distances."""

from .feature_form import Features

__all__ = ["Features"]
