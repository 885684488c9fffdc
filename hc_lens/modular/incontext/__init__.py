"""In-context learning of modular arithmetic: sequences of examples of one task z = a x + b y mod p, and who can continue them.

After "Learning to grok: Emergence of in-context learning and skill composition in modular arithmetic tasks" (He, Doshi, Das,
Gromov 2024, arXiv 2406.02550). A task is a pair of coefficients (a, b); an example is x, y and z; a number is one token.
"""
