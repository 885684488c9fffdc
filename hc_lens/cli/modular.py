"""`hc-lens modular`: networks that learn arithmetic modulo a prime; the second word says which question is asked."""

from types import MappingProxyType

from hc_lens.cli import Command
from hc_lens.cli.questions import Questions

QUESTIONS = Questions(
    "modular",
    "Networks that learn arithmetic modulo a prime.",
    MappingProxyType(
        {
            "corrupted": Command(
                "modular_corrupted", "train on partly corrupted labels; which neurons memorise, which generalize"
            ),
            "polynomial": Command("modular_polynomial", "a network of known weights for any polynomial; can it be learned?"),
            "icl": Command("modular_icl", "transformers that learn modular arithmetic in context"),
        }
    ),
    'modular polynomial "2*a**4*b + a**2*b**2 + 3*a*b**3" --p 97',
)

main = QUESTIONS.ask
