"""A process of one user that has the command line imported, and runs each call in a child of its own. It decides nothing."""
