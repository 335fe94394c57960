"""The way out of a box: a proxy outside that judges, dials and records (docs/adr/0037-egress.md)."""
