"""A box's network as far as it is the engine's: its keeper, published ports, variables, whom programs trust."""
