"""What is allowed: configuration, settings and rules, read from text and values; no module here touches a file."""
