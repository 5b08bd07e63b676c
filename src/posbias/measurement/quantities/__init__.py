"""What is measured: one module for each quantity, from captured attention to labelled numbers."""
