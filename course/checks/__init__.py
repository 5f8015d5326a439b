"""How an exercise's function is run and judged."""
