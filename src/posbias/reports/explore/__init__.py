"""The page on which one turns what the theory is about, and sees the profile of influence move.

`kernel.py` exports an architecture as numbers, `kernel.js` sweeps them in a browser.
"""
