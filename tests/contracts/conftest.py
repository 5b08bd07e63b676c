from browser_fixture import browser  # noqa: F401
