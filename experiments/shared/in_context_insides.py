"""What is inside a trained in-context learner, as sections of a report: its algorithm, its attention, its circles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd
from jaxtyping import Int
from torch import Tensor
from transformer_lens import HookedTransformer

from hc_lens.modular.incontext.algorithms import agreement, changed_match, ratio_matching
from hc_lens.modular.incontext.evaluation import (
    SETS,
    EvaluationSet,
    Phase,
    evaluation_sequences,
    last_shot,
    phase_of,
    predicted_answers,
)
from hc_lens.modular.incontext.figures_behaviour import agreement_by_shot, query_map
from hc_lens.modular.incontext.figures_insides import attention_heads, embedding_circle_figure, head_circles_figure
from hc_lens.modular.incontext.insides import (
    attention_maps,
    embedding_circle,
    head_circles,
    matching_attention,
    periodic_neurons,
    ratio_similarity,
)
from hc_lens.modular.incontext.sequences import all_queries, answers_of, examples_of
from hc_lens.modular.incontext.training import InContextRun
from hc_lens.modular.spectrum import in_log_basis, ipr
from hc_lens.report import Section, text_table
from hc_lens.train.checkpoints import name_of

_OF = SETS[2]
"""Agreement and insides are told on unseen tasks with train examples: there are enough of those for long sequences."""
_SEQUENCES = 2_000


@dataclass(frozen=True, eq=False)
class Tried:
    """A setting that was trained, finished or not."""

    name: str
    found: InContextRun

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """Accuracy by shot at every checkpoint."""
        return self.found.evaluations()

    @property
    def step(self) -> int:
        """How far it was trained."""
        return self.found.steps[-1]

    @property
    def last(self) -> pd.DataFrame:
        """Accuracy by shot at the end."""
        return self.evaluations[self.evaluations["step"] == self.step]

    @property
    def accuracies(self) -> dict[EvaluationSet, float]:
        """Accuracy on each set at the end, after most examples."""
        return last_shot(self.last)

    @property
    def phase(self) -> Phase:
        """The phase at the end."""
        return phase_of(self.accuracies)

    @property
    def unseen(self) -> float:
        """Accuracy on unseen tasks at the end, mean of train and test examples."""
        return (self.accuracies[SETS[2]] + self.accuracies[SETS[3]]) / 2

    @property
    def chance(self) -> float:
        """Accuracy of guessing."""
        return 1 / self.found.config.data.p


def agreements(base: Tried) -> pd.DataFrame:
    """Agreement with each algorithm by shot."""
    tokens = sequences(base)
    return agreement(predicted_answers(base.found.model(), tokens), tokens, base.found.config.data.p)


def agreement_section(base: Tried) -> Section:
    """Which algorithm the chosen model agrees with."""
    table = kept(base, "agreement", lambda: agreements(base))
    changed = kept(base, "changed-match", lambda: followed(base))
    return Section(
        "agreement",
        "Ratio matching or regression?",
        "Each algorithm is right where it answers. A model that matches ratios is right on what ratio matching answers and at "
        "chance on what regression alone answers; one that regresses is right on both. The second table changes the answer of "
        "the one example that the query is a multiple of: ratio matching follows it, the other examples say the original.",
        agreement_by_shot(table, chance=base.chance),
        shown=[text_table(changed, "After one changed example, what does the last answer follow?", percent=["share"])],
        folded=[text_table(table, "Agreement by shot", labels=2, percent=["share", "agreement"])],
    )


def followed(base: Tried) -> pd.DataFrame:
    """Share of last answers that follow the changed example, the other examples, or neither."""
    found = changed_match(sequences(base), base.found.config.data.p)
    said = predicted_answers(base.found.model(), found.tokens)[:, -1]
    changed, original = (said == found.changed).float().mean(), (said == found.original).float().mean()
    shares = {"the changed example": changed, "the other examples": original, "neither": 1 - changed - original}
    return pd.DataFrame({"follows": list(shares), "share": list(map(float, shares.values())), "n": len(said)})


def queries_section(base: Tried) -> Section:
    """All queries after the same examples."""
    most = base.found.config.data.n_shots - 1
    contexts = sorted({1, min(3, most), most})
    grid = kept(base, "queries", lambda: query_grid(base, contexts))
    counts = grid.assign(right=grid["correct"], alone=grid["correct"] & ~grid["ratio"], missed=grid["ratio"] & ~grid["correct"])
    shares = counts.groupby("examples")[["right", "ratio", "alone", "missed"]].mean().reset_index()
    names = {"alone": "right, no ratio", "missed": "ratio, not right"}
    table = text_table(shares.rename(columns=names), "Shares of all queries", percent=["right", "ratio", *names.values()])
    caption = "One unseen task; rings are the examples. Ratio matching is right on the lines through (0, 0) and an example."
    return Section("queries", "Which queries are answered", caption, query_map(grid, contexts=contexts), shown=[table])


def query_grid(base: Tried, contexts: Sequence[int]) -> pd.DataFrame:
    """Each query after the first examples of one sequence: whether the model is right, and whether ratio matching answers."""
    model, p = base.found.model(), base.found.config.data.p
    examples, task = one_context(base)
    tables: list[pd.DataFrame] = []
    for n in contexts:
        tokens = all_queries(examples[:n], task, p)
        x, y = examples_of(tokens)[:, -1].unbind(1)
        shown = {tuple(pair) for pair in examples[:n].tolist()}
        columns = {
            "x": x.tolist(),
            "y": y.tolist(),
            "correct": (predicted_answers(model, tokens) == answers_of(tokens))[:, -1].tolist(),
            "ratio": ratio_matching(tokens, p).answered[:, -1].tolist(),
            "shown": [pair in shown for pair in zip(x.tolist(), y.tolist(), strict=True)],
        }
        tables.append(pd.DataFrame({"examples": n, **columns}))
    return pd.concat(tables, ignore_index=True)


def attention_section(base: Tried) -> Section:
    """What heads attend to."""
    model, tokens = base.found.model(), sequences(base)[:256]
    table = kept(base, "matching-attention", lambda: matching_attention(model, tokens, base.found.config.data.p))
    shares = ["own", "matching", "other", "chance"]
    return Section(
        "attention",
        "What heads attend to",
        "Mean over sequences of unseen tasks; the last tokens. The table is of the last query's y: the query itself, examples "
        "that it is a multiple of, other examples; chance: the matching ones if all examples were looked at alike.",
        attention_heads(attention_maps(model, tokens), last=15),
        shown=[text_table(table, "Attention from the last y", labels=2, percent=shares)],
    )


def circles_section(base: Tried) -> Section:
    """Circles in the order of logarithms."""
    model, p = base.found.model(), base.found.config.data.p
    examples, task = one_context(base)
    queries = all_queries(examples[:-1], task, p)
    points, circles = head_circles(model, queries, p)
    fit = embedding_circle(model, p)[1]
    untrained = base.found.model(base.found.steps[0])
    embedding = pd.DataFrame([{"of": "embedding", **fit._asdict(), "IPR": log_ipr(model), "IPR untrained": log_ipr(untrained)}])
    neurons = periodic_neurons(model, queries, p).groupby("layer")[["ipr_x", "ipr_y"]].mean().reset_index()
    return Section(
        "circles",
        "Circles in the order of discrete logarithms",
        "The two principal components of what each head writes at the last query's x and y, for all queries without a 0, "
        "coloured by log x. R²: how much one harmonic of the logarithm explains; chance: after shuffling which number has "
        "which logarithm.",
        head_circles_figure(points, circles),
        shown=[
            text_table(circles, "Circularity of heads", labels=2, percent=["explained"]),
            text_table(embedding, "Circularity and IPR over logarithms of the embedding"),
            text_table(ratio_similarity(model, queries, p), "Cosine of block outputs: queries of one ratio y / x, and others"),
            text_table(neurons, "Mean IPR of MLP neurons over log x and log y"),
        ],
    )


def embedding_section(base: Tried) -> Section:
    """The embedding's circle."""
    ring, fit = embedding_circle(base.found.model(), base.found.config.data.p)
    caption = (
        f"Principal components of the embeddings; R² {fit.r2:.2f} of one harmonic of the logarithm, chance {fit.chance:.2f}."
    )
    return Section("embedding", "The numbers in the embedding", caption, embedding_circle_figure(ring))


def log_ipr(model: HookedTransformer) -> float:
    """Mean IPR over logarithms of the embedding's channels."""
    return float(ipr(in_log_basis(model.W_E.detach().cpu()), drop_mean=True).mean())


def sequences(base: Tried) -> Int[Tensor, "batch pos"]:
    """What agreement and attention are measured on."""
    data = base.found.config.data
    return evaluation_sequences(data.tasks(), data.examples(), _OF, data.n_shots, _SEQUENCES, data.seed + 1).tokens


def one_context(base: Tried) -> tuple[Int[Tensor, "shot 2"], Int[Tensor, "2"]]:
    """The examples of one sequence, and an unseen task that is not of multiples of one number alone."""
    tasks = base.found.config.data.tasks().unseen
    return examples_of(sequences(base))[0], tasks[int((tasks > 0).all(1).int().argmax())]


def kept(base: Tried, name: str, compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """A table of the model at its last step, computed once."""
    return base.found.run.table(f"analysis/{name}-{name_of(base.step)}", compute)
