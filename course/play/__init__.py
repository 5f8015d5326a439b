"""Toys: a lesson's mechanism, to be played with in the browser."""
