"""Mechanisms of the Linux kernel, one small module each."""
