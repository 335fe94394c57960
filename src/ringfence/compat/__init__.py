"""The names of the five design documents, where they clash with each other or with ours: one module for each document.

    shell_sandbox   000: every shell command of an agent in a sandbox
    managed         001: managed sandboxes with policy, pool and audit
    layered         002: checks in layers, and violations
    engines         003: engines and process sandboxes
    sessions        004: one entry, risk routing, sessions

They are thin views of the one face of `ringfence`: what runs, judges and records is the same. Names that mean the same
in a document and here are simply `ringfence`'s. docs/compatibility.md maps every name and says where we do otherwise.
"""
