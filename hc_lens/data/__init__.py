"""Tasks of labelled sentence pairs, where they come from, and their token batches."""

from hc_lens.data.batches import Batch, Encoded, encode, encode_tokens, shuffled_rows
from hc_lens.data.desk import Mixture, NliPool, data_folder, desk_mixture, desk_task, nli_pool
from hc_lens.data.files import Columns, read_pairs
from hc_lens.data.load import TASK_NAMES, load_task
from hc_lens.data.nli import HANS_COLLAPSE, HANS_LABELS, NLI_LABELS, PAPER_CASES, PAPER_CASES_GPT2, hans, mnli, mnli_files
from hc_lens.data.paraphrase import QQP_LABELS, paws_qqp, qqp, qqp_pool
from hc_lens.data.synthetic import synthetic_nli
from hc_lens.data.task import Split, Task

__all__ = [
    "HANS_COLLAPSE",
    "HANS_LABELS",
    "NLI_LABELS",
    "PAPER_CASES",
    "PAPER_CASES_GPT2",
    "QQP_LABELS",
    "TASK_NAMES",
    "Batch",
    "Columns",
    "Encoded",
    "Mixture",
    "NliPool",
    "Split",
    "Task",
    "data_folder",
    "desk_mixture",
    "desk_task",
    "encode",
    "encode_tokens",
    "hans",
    "load_task",
    "mnli",
    "mnli_files",
    "nli_pool",
    "paws_qqp",
    "qqp",
    "qqp_pool",
    "read_pairs",
    "shuffled_rows",
    "synthetic_nli",
]
