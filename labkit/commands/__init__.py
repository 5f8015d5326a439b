"""What `python -m labkit ...` does: one module per command, each with `configure` and `main`."""
