"""Values that have to stay outside of boxes: made up, in the shape of real ones."""

from typing import Final

GIT_TOKEN: Final = "ghp_" + "Q5w8E2r7T4y9U1i6O3" * 2
CANARY: Final = "sk-live-" + "Z3x9C5v1B7n4M8a2S6" * 2
"""One that is in a variable of whoever runs boxes."""
FILE_CANARY: Final = "key/+" + "L2k8J4h6G1f9D3s7P5" * 2
"""One that is in a file of theirs, and looks otherwise in a URL."""
