"""Builders, tiny child programs and watchers that tests share."""
