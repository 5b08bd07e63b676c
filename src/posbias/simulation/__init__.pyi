from .model import NORMS as NORMS
from .model import RecencyModel as RecencyModel
from .result import Averages as Averages
from .result import Recency as Recency
from .result import RecencyResult as RecencyResult
from .run import InterruptedSimulation as InterruptedSimulation
from .run import simulate as simulate
from .run import simulate_recency as simulate_recency
