"""A family of small decoders of our own; only the encoding of positions differs.

`model` is the decoder, `config` its sizes. The trained models lie in `bundled` beside this package
(`docs/encodings.md` describes them); `tools/tiny_models` at the root of the project is how they were made.
"""
