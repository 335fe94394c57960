"""Members made ahead of time, so that who needs one does not wait: the plan, and the pool that carries it out."""
