"""Notebooks as files: canonical form, exercises from solutions, hosted copies, the edition."""
