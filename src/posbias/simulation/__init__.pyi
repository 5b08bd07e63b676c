from .model import NORMS as NORMS
from .model import RecencyModel as RecencyModel
from .run import Averages as Averages
from .run import InterruptedSimulation as InterruptedSimulation
from .run import Recency as Recency
from .run import RecencyResult as RecencyResult
from .run import simulate as simulate
from .run import simulate_recency as simulate_recency
