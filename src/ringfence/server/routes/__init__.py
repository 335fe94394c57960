"""What each path of the service does: one module per subject, each with its rows of the route table."""
