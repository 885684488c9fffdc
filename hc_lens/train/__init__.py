"""Fine-tuning a classifier on a task: checkpoints, each evaluated, and bit-equal resumption."""

from hc_lens.origin import Checkpoint as Checkpoint
from hc_lens.train.checkpoints import checkpoints as checkpoints
from hc_lens.train.checkpoints import evaluations as evaluations
from hc_lens.train.config import TrainConfig as TrainConfig
from hc_lens.train.config import learning_rate as learning_rate
from hc_lens.train.loop import Evaluate as Evaluate
from hc_lens.train.loop import TrainingError as TrainingError
from hc_lens.train.loop import finetune as finetune
