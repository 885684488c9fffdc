"""A network of known weights for any polynomial modulo a prime: an expert for each term, and one that adds up their answers."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from hc_lens.limits import require_positive
from hc_lens.modular.analytic import addition_network, multiplication_network
from hc_lens.modular.polynomial import Polynomial

MOST_WEIGHTS = 2**28
"""Weights of an expert network at most: 1 GB in fp32."""

_WIDEST_SUM, _TERMS_OF_WIDEST = 50_000, 5


def width_of_sum(terms: int) -> int:
    """Neurons with which the sum of so many terms is right: 2000 for three, five times as many for each further one.

    At most 50 000, which is enough for five terms; a longer polynomial is then answered less well.
    """
    return _WIDEST_SUM if terms >= _TERMS_OF_WIDEST else int(2_000 * 5.0 ** (terms - 3))


class ExpertNetwork(HookedRootModule):
    """c_1 a^i_1 b^j_1 + ... + c_S a^i_S b^j_S mod p without any training (Doshi et al. 2024, section 5).

    Every term has a multiplication network of `n_expert` neurons; the softmax of `beta` times its logits, nearly one-hot, goes
    into an addition network of `n_sum` neurons that knows the coefficients.

    Hook points: those of the networks inside, `experts.0.hook_post`, `sum.hook_pre` and so on, and between them
    `hook_products`, Float[Tensor, "batch term residue"], the distribution of each expert's answer.

    Raises:
        ValueError: if a width is too small for a network, `beta` is not positive, or there would be more than `MOST_WEIGHTS`.
    """

    def __init__(
        self, polynomial: Polynomial, n_expert: int = 500, n_sum: int | None = None, beta: float = 100.0, seed: int = 0
    ) -> None:
        """`n_sum` is `width_of_sum` of the number of terms unless it is given."""
        super().__init__()
        require_positive("beta, which sharpens the experts' answers,", beta)
        terms, p = polynomial.terms, polynomial.p
        width = width_of_sum(len(terms)) if n_sum is None else n_sum
        # A neuron has p numbers for each of two factors and an answer, or in the sum for each term and an answer.
        weights = p * (3 * len(terms) * n_expert + (len(terms) + 1) * width)
        if weights > MOST_WEIGHTS:
            raise ValueError(
                f"a network of {len(terms)} experts of {n_expert} neurons and a sum of {width} would hold {weights:.2g} "
                f"weights, at most {MOST_WEIGHTS:.2g} are built: give a polynomial of fewer terms, or fewer neurons"
            )
        self.beta = beta
        self.experts = nn.ModuleList(
            multiplication_network(p, (term.a, term.b), n_expert, seed=(len(terms) + 1) * seed + place)
            for place, term in enumerate(terms, start=1)
        )
        self.sum = addition_network(p, [term.coefficient for term in terms], width, seed=(len(terms) + 1) * seed)
        self.hook_products = HookPoint()
        self.setup()

    def forward(self, numbers: Int[Tensor, "batch 2"]) -> Float[Tensor, "batch residue"]:
        """Logits of the p answers for rows of pairs (a, b)."""
        logits = torch.stack([expert(numbers) for expert in self.experts], dim=1)
        # Probabilities below 1e-30 are 0: as denormal numbers, exp(-beta) among them, they slow the next product tenfold.
        products = self.hook_products(functional.threshold((self.beta * logits).softmax(-1), 1e-30, 0.0))
        # A mixture of numbers goes in: the rows of each table weighted by their probabilities.
        return self.sum.readout(products.flatten(1) @ self.sum.U.flatten(0, 1))
