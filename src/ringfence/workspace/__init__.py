"""The directory that an agent works in, and every safe way to reach into it from outside."""
