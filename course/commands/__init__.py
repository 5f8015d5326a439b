"""What `python -m course` can do: one module a command."""
