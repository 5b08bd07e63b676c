"""The ground floor: what every other package may use, and what uses none of them."""
