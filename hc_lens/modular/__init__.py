"""Networks that learn arithmetic modulo a prime: what they memorise, what they generalize, and which neurons do which.

MLPs are HookedRootModules with hook points at their neurons, transformers are TransformerLens's own, so that edits, gates and
subnetworks are those of the rest of the package. Import from the modules of this folder: each answers one question.
"""
