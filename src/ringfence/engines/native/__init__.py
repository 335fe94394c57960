"""The native engine: host programs behind a wall that the Linux kernel builds, without root and without a daemon."""
