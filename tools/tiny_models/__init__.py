"""How the five bundled decoders were made: one text, one seed, one schedule, five encodings of positions."""
