"""Training the controlled retrieval experiments of Wu et al. 2025; needs torch."""
