from posbias.comparison import *  # temporary
