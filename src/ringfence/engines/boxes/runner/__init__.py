"""The helper `ringfence-box` in Python, for machines where no compiler was there when Ringfence was built.

The same two programs as in native/, which speak the same protocol (docs/box-protocol.md) and give the same guarantees:
`launch` outside (launch.c), `init` inside as PID 1 (init.c). Read those for the reasons behind the steps; here are only
the reasons that Python adds. `ringfence.engines.native.starting` decides which helper is used.

It runs in an interpreter of its own, with `-I -S` (no site, no PYTHON* variables, no working directory on the path),
apart from the manager: nothing in here imports anything but the standard library and this package. Inside a box this
package cannot be seen, only an interpreter can. So its text comes through a descriptor, made by `starting`: `main`
and, as data, the modules that it loads.

What differs from the helper in C: a box starts more slowly; its two interpreters take some 10 MiB of memory each, of
which the inner one counts for the box, and a command's peak is never reported as less, because the process that
becomes the command is a copy of it.
"""
