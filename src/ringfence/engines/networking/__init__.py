"""A box's network as far as it is the engine's: its socket maker, published ports, variables, whom programs trust."""
