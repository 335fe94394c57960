"""The client of a Ringfence server: the faces of the library, whose boxes are elsewhere (docs/client.md)."""
