"""Every signer that there is, by the name that a `SecretGrant` has."""

from ringfence.egress.secrets import github_app, google_service_account, oauth
from ringfence.egress.secrets.minting import Mint, Post
from ringfence.egress.secrets.posting import Poster

REQUEST_SIGNERS = frozenset(("aws-sigv4",))
"""Those that sign each request, in the proxy."""
TOKEN_SIGNERS = frozenset((oauth.REFRESH, oauth.CLIENT, github_app.NAME, google_service_account.NAME))
"""Those that exchange what a source holds for a token."""
SIGNERS = REQUEST_SIGNERS | TOKEN_SIGNERS


def make_mint(post: Post | None = None) -> Mint:
    """All exchanges; without a way to token endpoints, directly."""
    return Mint(
        {
            oauth.REFRESH: oauth.RefreshToken(),
            oauth.CLIENT: oauth.ClientCredentials(),
            github_app.NAME: github_app.GitHubApp(),
            google_service_account.NAME: google_service_account.GoogleServiceAccount(),
        },
        Poster() if post is None else post,
    )
