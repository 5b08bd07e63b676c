from llama_fixtures import build, folder, ids, text, tiny  # noqa: F401
