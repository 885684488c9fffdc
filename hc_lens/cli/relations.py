"""`hc-lens relations`: what a language model knows linearly, and what it generalizes from; the second word is the question."""

from types import MappingProxyType

from hc_lens.cli import Command
from hc_lens.cli.questions import Questions

QUESTIONS = Questions(
    "relations",
    "What a language model knows of relations such as landmark -> country, and what it generalizes from when fine-tuned.",
    MappingProxyType(
        {
            "probe": Command("relations_probe", "how linearly readable relations are in a pretrained model, layer by layer"),
            "finetune": Command(
                "relations_finetune", "fine-tune on new labels of the answers; are held-out subjects labelled right?"
            ),
            "study": Command("relations_study", "both, for many relations: does readability predict generalization?"),
        }
    ),
    "relations probe smollm2 landmark_in_country.json",
)

main = QUESTIONS.ask
