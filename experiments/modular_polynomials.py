"""Which polynomials modulo a prime can a network of one hidden layer compute, and which can it learn?

"Grokking modular polynomials" (Doshi, He, Das and Gromov 2024). Networks of known weights that add and multiply, and expert
networks made of them, at more and more neurons; trained networks beside them, by the spectra and phases of their neurons; and
training on polynomials of the form h(g1(a) + g2(b)) or h(g1(a) * g2(b)), and on the same with one more term.

Run: `python -m experiments.modular_polynomials --preset desk`; the same command resumes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset
from hc_lens.modular import polynomial_figures as figures
from hc_lens.modular.accuracy import accuracy
from hc_lens.modular.analytic import addition_network, multiplication_network
from hc_lens.modular.arithmetic import all_pairs
from hc_lens.modular.config import FitConfig
from hc_lens.modular.expert import ExpertNetwork
from hc_lens.modular.learnable import PAIRS, classify
from hc_lens.modular.learning import LEARNED, LearnConfig, evidence, learn, over_seeds
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.polynomial import polynomial
from hc_lens.modular.solutions import (
    Basis,
    addition_basis,
    multiplication_basis,
    neuron_table,
    phase_agreement,
    spectra,
)
from hc_lens.report import Article, Section, text_table, with_interval
from hc_lens.runs import Run

QUESTION = (
    "Which polynomials modulo a prime can a network of one hidden layer compute, and which can it learn from half of the pairs?"
)
EXPERTS = (
    "2*a**4*b + a**2*b**2 + 3*a*b**3",
    "a**5*b**3 + 4*a**2*b + 5*a**2*b**3",
    "7*a**4*b**4 + 2*a**3*b**2 + 4*a**2*b**5",
)


class Task(NamedTuple):
    """A sum of so many numbers, or the product of two, and the widths at which it is tried."""

    operation: Literal["sum", "product"]
    terms: int
    p: int
    widths: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.operation} of {self.terms}, p = {self.p}"


@dataclass(frozen=True)
class Config:
    """What is run.

    Attributes:
        tasks: of the analytic networks; `rows` of their inputs are tried, or all p^S if those are fewer.
        experts: the primes of the expert networks, and their widths (N1, N2).
        solutions: the prime at which a + b and a b are learned and compared with the analytic networks.
        learned: primes at which the paper's pairs are learned, each with its seeds.
        learning: how.
    """

    tasks: tuple[Task, ...]
    rows: int
    experts: Mapping[int, tuple[tuple[int, int], ...]]
    solutions: int
    learned: Mapping[int, tuple[int, ...]]
    learning: LearnConfig
    seeds: tuple[int, ...]


def config(preset: Preset) -> Config:
    """What is run at each scale: `paper` has its width of 5000 neurons in training and sums of five terms."""
    if preset == "smoke":
        tasks = (Task("sum", 2, 7, (20, 100)), Task("product", 2, 7, (20, 100)))
        learning = LearnConfig(60, fit=FitConfig(40, lr=0.03, weight_decay=5.0, measure_every=20))
        return Config(tasks, 200, {7: ((100, 200),)}, 11, {7: (0, 1)}, learning, (0,))
    tasks = (
        Task("sum", 2, 97, (25, 50, 100, 200, 400)),
        Task("product", 2, 97, (25, 50, 100, 200, 400)),
        Task("sum", 2, 23, (25, 50, 100, 200, 400)),
        Task("sum", 3, 23, (100, 200, 500, 1_000, 2_000)),
        Task("sum", 4, 23, (500, 1_000, 2_000, 5_000, 10_000)),
    )
    widths = ((200, 500), (300, 1_000), (500, 2_000))
    if preset == "desk":
        learned = {23: tuple(range(5)), 97: (0, 1, 2)}
        return Config(tasks, 2_000, {23: widths, 97: widths}, 97, learned, LearnConfig(), (0, 1, 2))
    tasks = (*tasks, Task("sum", 5, 23, (2_000, 5_000, 10_000, 20_000, 50_000)))
    learned = {23: tuple(range(10)), 97: tuple(range(5))}
    wide = LearnConfig(5_000, fit=replace(LearnConfig().fit, steps=1_000))
    return Config(tasks, 10_000, {23: widths, 97: widths}, 97, learned, wide, tuple(range(10)))


def inputs_of(task: Task, rows: int) -> Tensor:
    """All inputs, or as many random ones."""
    if task.p**task.terms <= max(rows, task.p**2):
        return torch.cartesian_prod(*[torch.arange(task.p)] * task.terms)
    return torch.randint(task.p, (rows, task.terms), generator=torch.Generator().manual_seed(0))


def analytic(task: Task, width: int, seed: int) -> ModularMlp:
    """The network of known weights."""
    if task.operation == "product":
        return multiplication_network(task.p, (1,) * task.terms, width, seed)
    return addition_network(task.p, (1,) * task.terms, width, seed)


def widths_table(config: Config) -> pd.DataFrame:
    """Accuracy of analytic networks by task, width and seed."""
    rows: list[dict[str, object]] = []
    for task in config.tasks:
        numbers = inputs_of(task, config.rows)
        target = (numbers.sum(1) if task.operation == "sum" else numbers.prod(1)) % task.p
        for width in task.widths:
            for seed in config.seeds:
                found = accuracy(analytic(task, width, seed), numbers, target)
                rows.append({"task": str(task), "width": width, "seed": seed, "accuracy": found})
    return pd.DataFrame(rows)


def experts_table(config: Config) -> pd.DataFrame:
    """Accuracy of expert networks over all pairs, by polynomial, p, widths and seed."""
    rows: list[dict[str, object]] = []
    for p, widths in config.experts.items():
        for text in EXPERTS:
            found = polynomial(text, p)
            pairs = all_pairs(p, found)
            for n_expert, n_sum in widths:
                for seed in config.seeds:
                    right = accuracy(ExpertNetwork(found, n_expert, n_sum, seed=seed), pairs.numbers, pairs.target)
                    row = {"polynomial": text, "p": p, "N1": n_expert, "N2": n_sum, "seed": seed, "accuracy": right}
                    rows.append(row)
    return pd.DataFrame(rows)


@dataclass(frozen=True, eq=False)
class Solutions:
    """Trained networks beside analytic ones: a row per network and neuron, a row per network, and spectra by panel."""

    neurons: pd.DataFrame
    networks: pd.DataFrame
    spectra: Mapping[str, Tensor]


def solutions(config: Config, places: Places) -> Solutions:
    """a + b and a b, each in the basis of both."""
    p = config.solutions
    bases: dict[str, Basis] = {"addition": addition_basis(p), "multiplication": multiplication_basis(p)}
    neurons: list[pd.DataFrame] = []
    networks: list[dict[str, object]] = []
    panels: dict[str, Tensor] = {}
    for task, text, make in (("addition", "a + b", addition_network), ("multiplication", "a*b", multiplication_network)):
        own, other = bases[task], bases["multiplication" if task == "addition" else "addition"]
        pairs = all_pairs(p, polynomial(text, p))
        known = [make(p, (1, 1), config.learning.n_neurons, seed) for seed in config.seeds]
        learned = [learn(polynomial(text, p), config.learning, seed, places.own / "runs").model for seed in config.seeds]
        for how, models in (("analytic", known), ("trained", learned)):
            for seed, model in zip(config.seeds, models, strict=True):
                table = neuron_table(model, own)
                neurons.append(table.assign(network=f"{task}, {how}", seed=seed))
                row = {"network": f"{text}, {how}", "seed": seed, "accuracy": accuracy(model, pairs.numbers, pairs.target)}
                row |= {"mean IPR": table["ipr"].mean(), "in the other basis": neuron_table(model, other)["ipr"].mean()}
                networks.append(row | phase_agreement(table)._asdict())
            panels[f"{text}, {how}"] = spectra(models[0], own)
        panels[f"{text}, trained, other basis"] = spectra(learned[0], other)
    return Solutions(pd.concat(neurons, ignore_index=True), pd.DataFrame(networks), panels)


def learned_table(config: Config, root: Path) -> pd.DataFrame:
    """What `classify` says of the paper's pairs, and how well networks learn them."""
    tables: list[pd.DataFrame] = []
    for p, seeds in config.learned.items():
        named = [(text, polynomial(text, p)) for pair in PAIRS for text in pair]
        table = over_seeds(evidence(named, config.learning, seeds, root))
        verdicts = [classify(found) for _, found in named]
        tables.append(table.assign(learnable=[v.learnable for v in verdicts], reason=[v.reason for v in verdicts]))
    return pd.concat(tables, ignore_index=True)


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything that the report tells."""

    config: Config
    widths: pd.DataFrame
    experts: pd.DataFrame
    solutions: Solutions
    learned: pd.DataFrame


def run(config: Config, places: Places) -> Article:
    """Measure, and tell; tables of analytic networks are kept, trained networks have runs of their own."""
    kept = Run.create(
        places.own, "analytic", {"tasks": [list(task) for task in config.tasks], "rows": config.rows, **_scale(config)}
    )
    widths = kept.table("widths", lambda: widths_table(config))
    experts = kept.table("experts", lambda: experts_table(config))
    found = solutions(config, places)
    return article(Measured(config, widths, experts, found, learned_table(config, places.own / "runs")))


def _scale(config: Config) -> dict[str, object]:
    experts = {str(p): [list(pair) for pair in widths] for p, widths in config.experts.items()}
    return {"experts": experts, "seeds": list(config.seeds)}


def told(found: Measured) -> str:
    """The results in sentences."""
    widest = found.experts[found.experts["N2"] == found.experts["N2"].max()]
    n1, n2 = (int(widest[name].max()) for name in ("N1", "N2"))
    trained = found.solutions.networks[found.solutions.networks["network"].str.endswith("trained")]
    agree = int((found.learned["learnable"] == found.learned["learned"]).sum())
    return (
        f"Expert networks of {n1} neurons per term and {n2} for the sum answer at least {widest['accuracy'].min():.2%} of all "
        f"pairs for {len(EXPERTS)} polynomials and p = {', '.join(map(str, found.config.experts))}.\n"
        f"Trained networks find the analytic solution: {trained['periodic'].sum() / trained['neurons'].sum():.0%} of neurons "
        f"are periodic in the right basis, and their phases add up to {trained['error'].mean():.2f} rad (unrelated: 1.57).\n"
        f"The verdict by form agrees with training (mean test accuracy of at least {LEARNED:.0%}) for {agree} of "
        f"{len(found.learned)} polynomials and primes."
    )


def exceptions(found: Measured) -> list[str]:
    """Where verdict and training differ, and polynomials of no learnable form that are answered far above chance."""
    notes: list[str] = []
    for row in found.learned.itertuples():
        if row.learnable != row.learned:
            verdict = "of a learnable form" if row.learnable else "of no learnable form"
            notes.append(f"{row.polynomial} modulo {row.p} is {verdict}, yet its test accuracy is {row.test:.1%}.")
        elif not row.learnable and row.low > 2 * row.majority:
            notes.append(
                f"{row.polynomial} modulo {row.p} is not learned, but {row.test:.1%} of its test pairs are answered right "
                f"(commonest answer: {row.majority:.1%}): what it differs in from a learnable polynomial is small there."
            )
    return notes


def analytic_sections(found: Measured) -> list[Section]:
    """How wide networks of known weights must be."""
    means = found.experts.groupby(["polynomial", "p", "N1", "N2"], sort=False)["accuracy"].agg(["mean", "min"]).reset_index()
    return [
        Section(
            "widths",
            "How many neurons an analytic network needs",
            f"Mean over {len(found.config.seeds)} draws of frequencies and phases, whiskers from the least to the greatest. "
            "Each further term asks for about five times as many neurons.",
            figures.width_curves(found.widths),
            folded=[text_table(found.widths, "Accuracy of analytic networks", percent=["accuracy"], digits={"accuracy": 2})],
        ),
        Section(
            "experts",
            "Expert networks compute any polynomial",
            "One network of N1 neurons for each term, and one of N2 for their sum; accuracy over all pairs, mean and least "
            "over seeds.",
            shown=[
                text_table(means, "Expert networks", percent=["mean", "min"], digits={"mean": 2, "min": 2}),
            ],
        ),
    ]


def solution_sections(found: Measured) -> list[Section]:
    """Trained networks beside analytic ones."""
    both = found.solutions
    percent = ["accuracy", "same"]
    return [
        Section(
            "spectra",
            "Neurons of trained networks have one frequency, as analytic ones do, in the right basis",
            "Each row is a neuron: the share of each frequency in the power of its weights. a b is periodic over discrete "
            "logarithms; in the other task's basis the same neurons are noise.",
            figures.neuron_spectra(both.spectra),
            shown=[text_table(both.networks, "Networks", labels=1, percent=percent)],
            width=(900, 1300),
        ),
        Section(
            "phases",
            "The phases of a neuron's inputs add up to that of its output",
            "Periodic neurons (IPR of at least 0.5) of all seeds; the grey line is the analytic solution, modulo 2 pi.",
            figures.phase_scatter(both.neurons),
            width=(700, 1100),
        ),
    ]


def learned_section(found: Measured) -> Section:
    """What is learned."""
    columns = ["polynomial", "p", "seeds", "learnable", "train", "test (%) [95 %]", "majority"]
    shown = with_interval(found.learned, "test", percent=True)[columns]
    return Section(
        "learned",
        "What networks learn, beside what the form of the polynomial says",
        f"Trained on half of the pairs ({found.config.learning.n_neurons} neurons, {found.config.learning.fit.steps} steps). "
        "Whiskers: 95 % interval over seeds. Grey: what the commonest training label would get.",
        figures.learnable_figure(found.learned),
        shown=[text_table(shown, "Verdict and training", labels=1, percent=["train", "majority"])],
        folded=[text_table(found.learned[["polynomial", "p", "reason"]], "The verdicts", labels=3)],
        width=(700, 1100),
    )


def article(found: Measured) -> Article:
    """The report."""
    fit = found.config.learning.fit
    return Article(
        title="Modular polynomials",
        question=QUESTION,
        answer=told(found),
        sections=[*analytic_sections(found), *solution_sections(found), learned_section(found)],
        notes=exceptions(found),
        provenance=versions(),
        config={
            "seeds": found.config.seeds,
            "learned": {str(p): seeds for p, seeds in found.config.learned.items()},
            "training": {
                "lr": fit.lr,
                "weight decay": fit.weight_decay,
                "steps": fit.steps,
                "alpha": found.config.learning.alpha,
            },
        },
    )


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    return run(config(preset), places)


if __name__ == "__main__":
    run_experiment("modular_polynomials", QUESTION, experiment)
