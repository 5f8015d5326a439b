"""One experiment per problem: the rank programs and `run(...) -> records`; nothing is drawn."""
