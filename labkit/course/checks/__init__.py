"""Checks of the exercises: one module per lesson, all built on `judging`."""
