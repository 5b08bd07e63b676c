from .answer import Check as Check
from .asking import check as check
