"""The engine without a wall, for whoever has switched the wall off twice."""
