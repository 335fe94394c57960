"""Signed bundles of portable tools: what they hold, who may sign them, where they are kept."""
