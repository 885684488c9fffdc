from .checkpoints import checkpoints as checkpoints
from .checkpoints import evaluations as evaluations
from .config import TrainConfig as TrainConfig
from .config import learning_rate as learning_rate
from .loop import Evaluate as Evaluate
from .loop import TrainingError as TrainingError
from .loop import finetune as finetune
