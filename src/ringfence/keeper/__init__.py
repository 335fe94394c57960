"""A process of one user that has the command line loaded, and runs each call in a child. It decides nothing."""
