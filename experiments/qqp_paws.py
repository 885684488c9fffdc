"""Does the main line hold for paraphrases: QQP to train on, PAWS-QQP to generalize to?

The Heuristic Core, sections 3 to 5: a QQP model calls pairs with the same words duplicates; of PAWS-QQP only the pairs of
label 0 are adversarial to that. Subnetworks at 30 and 60 % sparsity (the paper's), their shared heads, and what ablating them
costs.

- `smoke`: the embedded grammar. `desk`: MiniLM on a public sample of QQP. `paper`: bert-base-cased, GLUE's QQP.

PAWS-QQP is read from `$HC_LENS_DATA`: its licence asks each user to make it. Training pairs that occur in it are left out.

Run: `python -m experiments.qqp_paws --preset desk`; the same command resumes.
"""

from experiments.shared.base import SMOKE_SEEDS, study, study_config
from experiments.shared.command import Places, run_experiment
from experiments.shared.settings import Preset, qqp_desk, qqp_paper, smoke
from hc_lens.report import Article

QUESTION = (
    "Do subnetworks of a QQP model that agree in-domain also differ on PAWS, which heads do they share, and what do those do?"
)


def experiment(preset: Preset, places: Places) -> Article:
    """The main line on paraphrases."""
    if preset == "smoke":
        setting, seeds, rows = smoke(), SMOKE_SEEDS, 20
    elif preset == "desk":
        setting, seeds, rows = qqp_desk(), tuple(range(42, 48)), 200
    else:
        setting, seeds, rows = qqp_paper(), tuple(range(42, 54)), 500
    config = study_config(setting, sparsities=(0.3, 0.6), seeds=seeds, ablation_rows=rows, question=QUESTION)
    told = setting.notes
    done = study(setting, config, places, title="QQP and PAWS-QQP: subnetworks and their core", notes=lambda evaluation: told)
    return done.article


if __name__ == "__main__":
    run_experiment("qqp_paws", QUESTION, experiment)
