from .answer import ChoiceAnswer as ChoiceAnswer
from .asking import ChoiceJob as ChoiceJob
from .asking import choose as choose
from .effects import ChoiceEffects as ChoiceEffects
from .items import Item as Item
from .items import read_items as read_items
from .orders import orders_of as orders_of
