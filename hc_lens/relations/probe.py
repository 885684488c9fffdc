"""How linearly readable a relation is: a probe from the residual stream at the subject to the answer (step 4 of the protocol).

The layer and the probe's strength are those of the best inner cross-validation over the training facts; held-out facts are only
ever scored. Beside it stands the control task: the same probe for answers that were shuffled over the subjects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.functional import cross_entropy

from hc_lens.relations.config import ProbeConfig
from hc_lens.relations.fits import Fit, logistic
from hc_lens.relations.scores import above_chance, majority_rate, margins
from hc_lens.relations.split import Split, subject_key


@dataclass(frozen=True, eq=False)
class Readability:
    """A probe of each layer, and the one chosen among them.

    Attributes:
        layer: the one with the best inner cross-validation; 0 is the embedding, i the residual stream after i blocks.
        strength: of the probe at that layer.
        inner: accuracy in inner cross-validation by layer, each at its best strength.
        held_out: accuracy on held-out facts by layer: the profile, which chooses nothing.
        codes: true answers of the held-out facts, in the split's order.
        scores: of every answer for each of them, at the chosen layer; log-probabilities if the probe is logistic.
    """

    layer: int
    strength: float
    inner: Float64[Tensor, " layer"] = field(repr=False)
    held_out: Float64[Tensor, " layer"] = field(repr=False)
    codes: Int[Tensor, " held_out"] = field(repr=False)
    scores: Float64[Tensor, "held_out answer"] = field(repr=False)

    @property
    def accuracy(self) -> float:
        """Accuracy on the held-out facts at the chosen layer."""
        return float(self.held_out[self.layer])

    @property
    def majority(self) -> float:
        """The share of the commonest answer among the held-out facts."""
        return majority_rate(self.codes)

    @property
    def above(self) -> float:
        """The relation's readability: the accuracy above the majority rate, by `above_chance`."""
        return above_chance(self.accuracy, self.majority)

    @property
    def margins(self) -> Float64[Tensor, " held_out"]:
        """By how much each held-out fact's true answer outscores the best other one: positive where the probe is right."""
        return margins(self.scores, self.codes)


def readability(
    resid: Float[Tensor, "layer fact d_model"],
    codes: Int[Tensor, " fact"],
    split: Split,
    config: ProbeConfig,
    fit: Fit = logistic,
    subjects: Sequence[str] | None = None,
) -> Readability:
    """Probe every layer for the answer, trained on exactly the split's training facts, which choose the layer as well.

    The strength at each layer, then the layer, are those of the highest inner accuracy; where that is equal, of the lowest
    cross-entropy. Features are standardised by the facts a probe is trained on, in every fold anew.

    Args:
        resid: residual streams of all facts of the relation.
        codes: each fact's answer, as a place among the relation's answers.
        fit: the probe.
        subjects: of the facts, where one may come several times (under several templates): all its facts are then on the same
            side of the split and of each fold.

    Raises:
        ValueError: if a subject is trained on and held out, or an answer has fewer than two training subjects.
    """
    facts = _Facts.of(codes, split, subjects)
    folds = facts.folds(config)
    layers = [_probe(features, facts, folds, fit, config.strengths) for features in resid.double().cpu().numpy()]
    layer = max(range(len(layers)), key=lambda place: layers[place].rank)
    return Readability(
        layer=layer,
        strength=layers[layer].strength,
        inner=torch.tensor([each.inner for each in layers], dtype=torch.float64),
        held_out=torch.tensor([_accuracy(each.held_out, facts.held_out) for each in layers], dtype=torch.float64),
        codes=facts.held_out,
        scores=layers[layer].held_out,
    )


@dataclass(frozen=True, eq=False)
class Control:
    """The control task (Hewitt & Liang 2019) at the layer of a readability: the same probe, for shuffled answers.

    Attributes:
        held_out: accuracy on held-out facts, by draw: chance, unless something leaks, for unlike Hewitt and Liang's words these
            subjects were not trained on.
        train: accuracy on the training facts, by draw: how much a probe of the chosen strength can memorise.
        selectivity: the accuracy on the true answers minus the mean of `held_out`.
    """

    held_out: Float64[Tensor, " draw"]
    train: Float64[Tensor, " draw"]
    selectivity: float


def control_task(
    resid: Float[Tensor, "layer fact d_model"],
    codes: Int[Tensor, " fact"],
    split: Split,
    config: ProbeConfig,
    of: Readability,
    fit: Fit = logistic,
    subjects: Sequence[str] | None = None,
    draws: int = 5,
) -> Control:
    """Probe for answers shuffled over the subjects, at the layer of a readability; the strength is chosen anew for each draw.

    Subjects exchange their answers within the training facts and within the held-out ones, so that every answer keeps as many
    subjects in each.

    Raises:
        ValueError: as `readability`; or if there is no draw.
    """
    if draws < 1:
        raise ValueError(f"the control task needs at least one draw, got {draws}")
    features = resid[of.layer].double().cpu().numpy()
    facts = _Facts.of(codes, split, subjects)
    generator = np.random.default_rng(config.seed)
    held_out: list[float] = []
    train: list[float] = []
    for _ in range(draws):
        shuffled = facts.shuffled(generator)
        probe = _probe(features, shuffled, shuffled.folds(config), fit, config.strengths)
        held_out.append(_accuracy(probe.held_out, shuffled.held_out))
        train.append(_accuracy(probe.train, shuffled.train))
    return Control(
        held_out=torch.tensor(held_out, dtype=torch.float64),
        train=torch.tensor(train, dtype=torch.float64),
        selectivity=of.accuracy - sum(held_out) / draws,
    )


_Folds = list[tuple[np.ndarray, np.ndarray]]
"""Places among the training facts: those fitted on, and those scored."""


@dataclass(frozen=True, eq=False)
class _Facts:
    """The answers of all facts, the number of each fact's subject, and the split."""

    codes: Int[Tensor, " fact"]
    subjects: Int[np.ndarray, " fact"]
    split: Split

    @classmethod
    def of(cls, codes: Int[Tensor, " fact"], split: Split, subjects: Sequence[str] | None) -> "_Facts":
        """Check that a probe can be trained and tested on them."""
        names = [str(place) for place in range(len(codes))] if subjects is None else [subject_key(name) for name in subjects]
        if both := {names[place] for place in split.train} & {names[place] for place in split.held_out}:
            raise ValueError(f"the subject {min(both)!r} is trained on and held out: a probe would know its answer")
        facts = cls(codes.cpu(), np.unique(names, return_inverse=True)[1], split)
        counts = facts.trained_subjects()
        if len(counts) < 2 or counts.min() < 2:
            raise ValueError(
                "a probe needs two answers with two training subjects each, or more; the training subjects of the answers, in "
                f"their order: {counts.tolist()}"
            )
        return facts

    @property
    def train(self) -> Int[Tensor, " train"]:
        """The answers of the training facts."""
        return self.codes[list(self.split.train)]

    @property
    def held_out(self) -> Int[Tensor, " held_out"]:
        """The answers of the held-out facts."""
        return self.codes[list(self.split.held_out)]

    def trained_subjects(self) -> Int[np.ndarray, " answer"]:
        """How many different training subjects each answer has."""
        pairs = np.unique(np.stack([self.subjects[list(self.split.train)], self.train.numpy()]), axis=1)
        return np.bincount(pairs[1], minlength=int(self.codes.max()) + 1)

    def folds(self, config: ProbeConfig) -> _Folds:
        """Folds of the training subjects, stratified by answer."""
        subjects, first, of_fact = np.unique(self.subjects[list(self.split.train)], return_index=True, return_inverse=True)
        n_folds = min(config.folds, int(self.trained_subjects().min()))
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=config.seed)
        places = [np.isin(of_fact, scored) for _, scored in folds.split(subjects, self.train.numpy()[first])]
        return [(np.flatnonzero(~scored), np.flatnonzero(scored)) for scored in places]

    def shuffled(self, generator: np.random.Generator) -> "_Facts":
        """The same facts with answers exchanged among the subjects of each side of the split."""
        codes = self.codes.clone()
        for side in map(list, self.split):
            _, first, of_fact = np.unique(self.subjects[side], return_index=True, return_inverse=True)
            codes[side] = self.codes[side][generator.permutation(first)[of_fact]]
        return replace(self, codes=codes)


class _Probe(NamedTuple):
    """A probe of one layer, at its best strength: inner accuracy and cross-entropy, and scores of both sides of the split."""

    inner: float
    loss: float
    strength: float
    train: Float64[Tensor, "train answer"]
    held_out: Float64[Tensor, "held_out answer"]

    @property
    def rank(self) -> tuple[float, float]:
        return self.inner, -self.loss


def _probe(
    features: Float64[np.ndarray, "fact d_model"], facts: _Facts, folds: _Folds, fit: Fit, strengths: Sequence[float]
) -> _Probe:
    train, held_out = features[list(facts.split.train)], features[list(facts.split.held_out)]
    codes = facts.train
    inner = torch.empty(len(strengths), len(codes), int(codes.max()) + 1, dtype=torch.float64)
    for fitted, scored in folds:
        inner[:, torch.as_tensor(scored)] = probe_scores(train[fitted], codes[fitted], train[scored], fit, strengths)
    accuracies = [_accuracy(scores, codes) for scores in inner]
    losses = [float(cross_entropy(scores, codes)) for scores in inner]
    best = max(range(len(strengths)), key=lambda place: (accuracies[place], -losses[place]))
    (scores,) = probe_scores(train, codes, np.concatenate([train, held_out]), fit, (strengths[best],))
    return _Probe(accuracies[best], losses[best], strengths[best], scores[: len(train)], scores[len(train) :])


def probe_scores(
    train: Float64[np.ndarray, "fact d_model"],
    codes: Int[Tensor, " fact"],
    scored: Float64[np.ndarray, "held_out d_model"],
    fit: Fit,
    strengths: Sequence[float],
) -> Float64[Tensor, "strength held_out answer"]:
    """Scores of a probe of standardised features.

    They are turned to the principal axes of the training facts, all of them kept. Probes that penalise only the length of their
    weights are the same there, for the best weights are a combination of training facts; and there are fewer facts than
    dimensions.
    """
    prepare = make_pipeline(StandardScaler(), PCA(svd_solver="full"))
    with np.errstate(invalid="ignore"):  # of states that are all equal, as the embedding of a prompt's last token is
        features = prepare.fit_transform(train)
    return fit(features, codes.numpy(), prepare.transform(scored), strengths)


def _accuracy(scores: Float[Tensor, "fact answer"], codes: Int[Tensor, " fact"]) -> float:
    return float((scores.argmax(1) == codes).double().mean())
