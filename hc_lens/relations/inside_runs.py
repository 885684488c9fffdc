"""What lies inside a measured relation, kept in its run: the units that carry it, and those that its new labels use.

Both are of the first seed, and of the first fine-tuning.
"""

from collections.abc import Sequence

import pandas as pd

from hc_lens.models import LanguageModel
from hc_lens.pruning import PruneConfig, PruneError
from hc_lens.relations.finetune import finetune_relation
from hc_lens.relations.insides import carriers, relation_subnetworks, shared_heads
from hc_lens.relations.measured import Measured, tuning_in
from hc_lens.relations.prompts import encode_prompts
from hc_lens.runs import digest


def carrier_units(measured: Measured, model: LanguageModel) -> pd.DataFrame:
    """The table of `carriers`, with `relation`: which heads and MLPs the probe of the first seed rests on.

    Raises:
        BusyError: if another process works on the relation.
    """
    config, seed = measured.config, measured.config.seeds[0]
    relation = measured.relation

    def compute() -> pd.DataFrame:
        prompts = encode_prompts(model, relation, config.template)
        found = measured.probed(seed).found
        return carriers(model, prompts, relation.codes, measured.split(seed), found, config.at)

    with measured.run.locked():
        return measured.run.table("units", compute).assign(relation=relation.name)


def gates_before_and_after(measured: Measured, model: LanguageModel, config: PruneConfig, seeds: Sequence[int]) -> pd.DataFrame:
    """The table of `shared_heads`, with `relation`: gates pruned for the new labels, before fine-tuning on them and after it.

    Before it the model is asked for labels that it was never taught: what its gates share with those after it is what any
    answer to such a prompt takes.

    Raises:
        BusyError: if another process works on the relation.
        ValueError: for labels of several tokens.
        PruneError: if no seed gave a subnetwork both before and after: all others' gates ended open, or closed.
    """
    relation, template, variant = measured.relation, measured.config.template, measured.config.variants[0]
    labels = measured.tuned(variant).labels
    name = f"gates/{digest({'config': config.as_dict(), 'seeds': list(seeds)})[:12]}"

    def compute() -> pd.DataFrame:
        tuned = finetune_relation(
            model,
            relation,
            measured.split(variant.seed),
            labels,
            template,
            tuning_in(measured.run, model, measured.config.finetune),
            variant.seed,
            keep_model=True,
        ).model
        assert tuned is not None
        before, after = (
            relation_subnetworks(each, relation, template, labels.labels, config, seeds) for each in (model, tuned)
        )
        both = {sub.seed for sub in before} & {sub.seed for sub in after}
        if not both:
            raise PruneError(f"relation {relation.name!r}: no seed gave a subnetwork both before and after fine-tuning")
        before, after = ([sub for sub in subs if sub.seed in both] for subs in (before, after))
        return shared_heads(before, after)

    with measured.run.locked():
        return measured.run.table(name, compute).assign(relation=relation.name)
