"""The engine whose programs are WebAssembly modules (docs/wasi.md)."""
