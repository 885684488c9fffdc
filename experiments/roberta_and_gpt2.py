"""Do RoBERTa and GPT-2 have a heuristic core, too?

The Heuristic Core, appendix: the main line by changing nothing but the model. RoBERTa at 50 % sparsity, GPT-2 at 40 and 60 %:
right padding, its last real token pooled, pairs joined by `hc_lens.data.tokenise.PAIR_SEPARATOR`. For GPT-2 the paper averages
two entailed subcases as OOD-E (`hc_lens.data.nli.PAPER_CASES_GPT2`).

- `smoke`, `desk`: small models of both families, trained on the embedded grammar. `paper`: roberta-base and gpt2 from the hub.

Run: `python -m experiments.roberta_and_gpt2 --preset desk`; the same command resumes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from transformers import GPT2Config, RobertaConfig

from experiments.shared.base import Base, pruned_base
from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset, Setting, embedded_as, nli_hub
from hc_lens import figures
from hc_lens.analysis import head_frequency, spread
from hc_lens.data.nli import PAPER_CASES_GPT2
from hc_lens.data.synthetic import MAX_LENGTH, synthetic_tokenizer
from hc_lens.metrics import grouped
from hc_lens.prose import p_text
from hc_lens.pruning import pruned_evaluation
from hc_lens.report import Article, Section, text_table

QUESTION = "Do subnetworks of RoBERTa and of GPT-2 generalize as differently as BERT's, and do they share a core?"


@dataclass(frozen=True)
class Family:
    """One model, the sparsities it is pruned to, and cases to average."""

    name: str
    setting: Setting
    sparsities: tuple[float, ...]
    groups: Mapping[str, tuple[str, ...]]


def families(preset: Preset) -> tuple[list[Family], tuple[int, ...]]:
    """The models at each scale, and the pruning seeds."""
    if preset == "paper":
        roberta, gpt2 = nli_hub("FacebookAI/roberta-base"), nli_hub("openai-community/gpt2")
        return [Family("RoBERTa", roberta, (0.5,), {}), Family("GPT-2", gpt2, (0.4, 0.6), PAPER_CASES_GPT2)], tuple(
            range(42, 54)
        )
    small = preset == "smoke"
    roberta, gpt2 = (embedded_as(config, smoke_scale=small) for config in (_roberta(), _gpt2()))
    seeds = (42, 43) if small else tuple(range(42, 48))
    return [Family("RoBERTa", roberta, (0.5,), {}), Family("GPT-2", gpt2, (0.4, 0.6), {})], seeds


def _roberta() -> RobertaConfig:
    return RobertaConfig(
        vocab_size=len(synthetic_tokenizer()),
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=512,
        max_position_embeddings=MAX_LENGTH + 1,  # positions are counted from pad_token_id + 1
        type_vocab_size=2,
        initializer_range=0.05,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
    )


def _gpt2() -> GPT2Config:
    return GPT2Config(
        vocab_size=len(synthetic_tokenizer()),
        n_positions=MAX_LENGTH,
        n_embd=128,
        n_layer=4,
        n_head=8,
        initializer_range=0.05,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )


def told(family: Family, base: Base, evaluation: pd.DataFrame) -> str:
    """The family's accuracies and core in a sentence."""
    full = evaluation[evaluation["subnetwork"] == "full"].groupby("group")["accuracy"].mean()
    pruned = evaluation[evaluation["subnetwork"] != "full"]
    by_seed = pruned.groupby(["group", "target", "seed"])["accuracy"].mean()
    ranges = ", ".join(
        f"{group} {full[group]:.1%} (subnetworks {by_seed[group].min():.1%} to {by_seed[group].max():.1%})"
        for group in full.index
    )
    core = base.core
    return (
        f"{family.name}: {ranges}; {core.k} of {core.n} subnetworks share {len(core.heads)} heads (p = {p_text(core.p_value)}: "
        f"permutations share {core.null_low:g} to {core.null_high:g})."
    )


def sections(family: Family, base: Base, evaluation: pd.DataFrame) -> list[Section]:
    """Accuracy by case and head frequencies."""
    anchor = family.name.lower().replace("-", "")
    spreads = spread(evaluation, by=("target", "case", "group"))
    tables = [text_table(spreads, "Accuracy by case", labels=3, percent=["full", "min", "max", "mean", "spread"])]
    if family.groups:
        means = grouped(evaluation, family.groups)
        tables.append(text_table(spread(means, by=("target", "case", "group")), "Grouped as in the paper", labels=3))
    frequency = pd.concat([head_frequency(p.subnetworks).assign(sparsity=p.config.sparsity) for p in base.pruned])
    return [
        Section(
            f"{anchor}-subnetworks",
            f"{family.name}: accuracy of every subnetwork on every case",
            "Each mark is one subnetwork; black bar: the full model.",
            figures.strip(evaluation),
            folded=tables,
            width=(560, 1100),
        ),
        Section(
            f"{anchor}-heads",
            f"{family.name}: how often each head is kept",
            f"Outlined: the core, kept by {base.core.k} of {base.core.n} ({' '.join(map(str, base.core.heads))}).",
            figures.head_heatmap(frequency.reset_index(drop=True), base.core.heads),
        ),
    ]


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    chosen, seeds = families(preset)
    answers: list[str] = []
    shown: list[Section] = []
    warnings: list[str] = []
    for family in chosen:
        base = pruned_base(family.setting, places, sparsities=family.sparsities, seeds=seeds)
        evaluation = pruned_evaluation(base.pruned)
        answers.append(told(family, base, evaluation))
        shown += sections(family, base, evaluation)
        warnings += [f"{family.name}, {text}" for each in base.pruned for text in each.warnings]
    return Article(
        title="RoBERTa and GPT-2",
        question=QUESTION,
        answer="\n".join(answers),
        sections=shown,
        warnings=warnings,
        notes=[note for family in chosen for note in family.setting.notes],
        provenance=versions(),
        config={family.name: {"sparsities": family.sparsities, "seeds": seeds} for family in chosen},
    )


if __name__ == "__main__":
    run_experiment("roberta_and_gpt2", QUESTION, experiment)
