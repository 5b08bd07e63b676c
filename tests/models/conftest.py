from tiny import build, folder, ids, text, tiny  # noqa: F401
