"""A family of small decoders of our own: one text, one seed, one schedule; only the encoding of positions differs.

`model` is the decoder, `corpus` the text it learns from, `train` the training (`python -m
posbias.measure.tiny.train`). The trained models lie in `posbias/measure/models`; `docs/encodings.md` describes
them. Nothing heavy happens at import.
"""
