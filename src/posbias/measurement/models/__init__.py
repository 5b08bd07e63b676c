"""Models: where they lie, how they are fetched, loaded and placed, and what families differ in."""
