"""Kernel matrices computed from features, graphs and distances."""

from .feature_form import Features
from .labeled import Labeled

__all__ = ["Features", "Labeled"]
