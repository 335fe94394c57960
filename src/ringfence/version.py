"""The version of this package: to ask its metadata would load forty modules for one line."""

VERSION = "0.1.0"
