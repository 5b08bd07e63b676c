"""The papers' theorems as functions: bounds, distances, scores and integrals."""
