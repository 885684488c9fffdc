from .questions import *
from .surface import *

__version__: str
