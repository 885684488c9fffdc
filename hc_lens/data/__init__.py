"""Tasks of sentence pairs and their token batches."""

from hc_lens.data.batches import Batch, Encoded, encode, encode_tokens, shuffled_rows
from hc_lens.data.task import Split, Task

__all__ = ["Batch", "Encoded", "Split", "Task", "encode", "encode_tokens", "shuffled_rows"]
