"""Prune a frozen model with hard-concrete gates: many seeds in one call, each a subnetwork that imitates the full model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
